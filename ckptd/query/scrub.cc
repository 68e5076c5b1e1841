// Arguments and document of `scrub`.
#include "ckptd/query/documents.h"

namespace ckptd {
namespace {

Json time_or_null(uint64_t time_ns) { return time_ns == 0 ? Json() : Json(iso_time(time_ns)); }

Json pass_json(const ScrubPass& pass) {
  return {{"number", pass.number},
          {"began", iso_time(pass.began_ns)},
          {"ended", time_or_null(pass.ended_ns)},
          {"checked_bytes", pass.checked_bytes},
          {"commits", pass.commits},
          {"unchecked", pass.unchecked},
          {"unchecked_reason", pass.unchecked > 0 ? Json(pass.unchecked_reason) : Json()}};
}

// Position of the running pass: a commit, by its journal record, and one of its extents.
Json cursor_json(const QueryContext& context, const ScrubCursor& cursor) {
  const auto run = context.catalog.run(cursor.run);
  return {{"run", run.ok() ? Json(run->name) : Json()},
          {"record", cursor.sequence},
          {"extent", cursor.extent}};
}

}  // namespace

Result<ScrubArgs> parse_scrub_args(std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"start", "bytes_per_second"}));
  ScrubArgs scrub;
  CKPT_ASSIGN(scrub.start, parsed.flag("start"));
  CKPT_ASSIGN(scrub.bytes_per_second, parsed.number("bytes_per_second", 0));
  if (!scrub.start && parsed.has("bytes_per_second")) {
    return make_error(ckpt::ErrorCode::kInvalidArgument,
                      "bytes_per_second is for a pass that is to start");
  }
  return scrub;
}

QueryAnswer scrub_answer(const QueryContext& context, const ScrubReport& report,
                         std::optional<uint64_t> begun) {
  const ScrubState& state = report.state;
  uint64_t store_bytes = 0;
  for (const RunInfo& run : context.catalog.runs()) store_bytes += run.bytes;
  Json errors = Json::array();
  for (const ScrubDamage& damage : state.damages) {
    errors.push_back({{"run", damage.run},
                      {"step", damage.step},
                      {"lineage", damage.lineage},
                      {"unit", damage.unit},
                      {"reason", damage.reason},
                      {"found", iso_time(damage.found_ns)}});
  }
  Json document = {{"state", report.doing},
                   {"bytes_per_second", report.bytes_per_second},
                   {"interval_seconds", report.interval.count() / 1000},
                   {"commits_waiting", report.commits_waiting},
                   {"store_bytes", store_bytes},
                   {"pass", Json()},
                   {"last_pass", state.last.number > 0 ? pass_json(state.last) : Json()},
                   {"errors", std::move(errors)}};
  if (state.pass) {
    document["pass"] = pass_json(*state.pass);
    document["pass"]["bytes_per_second"] =
        state.pass->bytes_per_second > 0 ? state.pass->bytes_per_second : report.bytes_per_second;
    document["pass"]["cursor"] = cursor_json(context, state.pass->cursor);
  }
  if (state.damages_left_out > 0) document["errors_left_out"] = state.damages_left_out;
  if (begun) document["begun"] = *begun;
  const bool sound = state.damages.empty() && state.damages_left_out == 0;
  int exit_code = state.last.unchecked > 0 ? 1 : 0;
  if (!sound) exit_code = exit_code_for(ckpt::ErrorCode::kCorrupt);
  if (begun) exit_code = 0;
  return {exit_code, dump(document)};
}

}  // namespace ckptd
