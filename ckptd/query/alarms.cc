// What looked wrong with snapshots, those that were refused included.
#include <functional>

#include "ckptd/query/documents.h"

namespace ckptd {
namespace {

using ckpt::fb::AlarmKind;
using Specs = std::vector<ckpt::UnitSpec>;

// A snapshot that raised alarms: a commit, or a refusal.
struct Raised {
  uint64_t sequence = 0;
  ckpt::SnapshotKey snapshot;
  uint64_t time_ns = 0;
  bool refused = false;
  ckpt::AlarmList alarms;
};

Json snapshot_json(const Raised& raised) {
  return {{"step", raised.snapshot.step},
          {"lineage", raised.snapshot.lineage},
          {"attempt", raised.snapshot.attempt},
          {"time", iso_time(raised.time_ns)},
          {"refused", raised.refused}};
}

Json alarm_json(const Raised& raised, const ckpt::Alarm& alarm, const Specs& specs) {
  Json document = snapshot_json(raised);
  const bool known = alarm.unit < specs.size();
  const bool floats = alarm.kind == AlarmKind::NotFinite;
  document["kind"] = ckpt::alarm_kind_name(alarm.kind);
  document["unit"] = known ? Json(specs[alarm.unit].name) : Json();
  document["layer"] = known ? attribute(specs[alarm.unit].layer) : Json();
  document["expert"] = known ? attribute(specs[alarm.unit].expert) : Json();
  document["part"] = known ? Json(ckpt::unit_part_name(specs[alarm.unit].part)) : Json();
  document["floats"] = floats ? Json(alarm.value) : Json();
  document["version_step"] = floats ? Json() : Json(alarm.value);
  document["text"] = describe(alarm, raised.snapshot.step, specs);
  return document;
}

// Newest first, one at a time, until `visit` returns false. Refusals are few, commits are not.
void visit_raised(const Catalog& catalog, ckpt::RunId run,
                  const std::function<bool(const Raised&)>& visit) {
  std::vector<Refusal> refusals = catalog.refusals(run);  // oldest first
  bool more = true;
  const auto visit_refusals_after = [&](uint64_t sequence) {
    while (more && !refusals.empty() && refusals.back().sequence > sequence) {
      Refusal& newest = refusals.back();
      more =
          visit({newest.sequence, newest.snapshot, newest.time_ns, true, std::move(newest.alarms)});
      refusals.pop_back();
    }
  };
  catalog.visit_commits(run, [&](const CommitInfo& commit) {
    visit_refusals_after(commit.sequence);
    if (more && !commit.deleted && !commit.alarms.empty()) {
      more = visit({commit.sequence, commit.snapshot, commit.time_ns, false, commit.alarms});
    }
    return more;
  });
  visit_refusals_after(0);
}

}  // namespace

Result<Json> alarms_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, args.selector("target"));
  CKPT_ASSIGN(const RunInfo run, selected_run(context, selector));
  CKPT_ASSIGN(const uint64_t limit, args.number("limit", ~uint64_t{0}));
  if (selector.kind != ckpt::Selector::Kind::kRun) {
    return make_error(ckpt::ErrorCode::kInvalidArgument, "alarms takes a run, not {}",
                      to_string(selector));
  }
  CKPT_ASSIGN(const auto specs, context.catalog.units(run.id));
  Json document = Json::array();
  if (limit == 0) return document;
  visit_raised(context.catalog, run.id, [&](const Raised& raised) {
    if (selector.lineage != 0 && selector.lineage != raised.snapshot.lineage) return true;
    for (const ckpt::Alarm& alarm : raised.alarms.alarms) {
      document.push_back(alarm_json(raised, alarm, *specs));
      if (document.size() >= limit) return false;
    }
    if (raised.alarms.left_out == 0) return true;
    Json more = snapshot_json(raised);
    more["kind"] = "more";
    more["count"] = raised.alarms.left_out;
    document.push_back(std::move(more));
    return document.size() < limit;
  });
  return document;
}

}  // namespace ckptd
