#include "trainer/report/report.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"
#include "trainer/report/change_json.h"
#include "trainer/report/exchange_json.h"
#include "trainer/report/json_fields.h"
#include "trainer/report/rank_times_json.h"
#include "trainer/report/replan_json.h"
#include "trainer/report/timings_json.h"

namespace moetrain::report {
namespace {

using nlohmann::ordered_json;

// More than any run has; a report that claims more is invalid.
constexpr size_t kLossesMax = 100'000'000;

ordered_json loss_value(float loss) {
  return std::isfinite(loss) ? ordered_json(loss) : ordered_json(nullptr);
}

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json failure_json(const Failure& failure) {
  ordered_json json = {{"step", failure.step},
                       {"at_step", failure.at_step},
                       {"ranks", failure.ranks},
                       {"detected_ms", number_or_null(failure.detected_ms)},
                       {"resumed_ms", number_or_null(failure.resumed_ms)},
                       {"steps_lost", failure.steps_lost},
                       {"bytes",
                        {{"replica", failure.bytes.replica},
                         {"memory", failure.bytes.memory},
                         {"disk", failure.bytes.disk},
                         {"peer", failure.bytes.peer},
                         {"tier", failure.bytes.tier}}},
                       {"stale_units", failure.stale_units},
                       {"lost_tokens", failure.lost_tokens},
                       {"experts_from_seed", failure.experts_from_seed}};
  if (failure.group == 0) return json;
  json["group"] = failure.group;
  json["effective_replicas"] = failure.effective_replicas;
  json["split_ms"] = {{"detect", failure.split_ms.detect},
                      {"regroup", failure.split_ms.regroup},
                      {"plan", failure.split_ms.plan},
                      {"migrate", failure.split_ms.migrate},
                      {"first_step", failure.split_ms.first_step}};
  return json;
}

// Only if survivors continued.
void read_split(Fields& entry, Failure& failure) {
  failure.group = static_cast<uint32_t>(entry.number_or("group", 0));
  if (failure.group == 0) return;
  failure.effective_replicas = static_cast<uint32_t>(entry.count("effective_replicas"));
  Fields split = entry.object("split_ms");
  failure.split_ms = {.detect = split.number("detect"),
                      .regroup = split.number("regroup"),
                      .plan = split.number("plan"),
                      .migrate = split.number("migrate"),
                      .first_step = split.number("first_step")};
  entry.absorb(split);
}

ordered_json checkpoint_json(const Checkpoint& checkpoint) {
  return {{"step", checkpoint.step},
          {"bytes", checkpoint.bytes},
          {"bytes_kept", checkpoint.bytes_kept},
          {"rank_bytes_max", checkpoint.rank_bytes_max},
          {"rank_bytes_mean", checkpoint.rank_bytes_mean},
          {"stall_ms", checkpoint.stall_ms},
          {"durable_ms", checkpoint.durable_ms},
          {"parts_ms", timings_json(checkpoint.timings)}};
}

// 8 hex digits -> fp32; nothing else is taken.
bool read_loss_bits(const std::string& digits, float* loss) {
  uint32_t bits = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, bits, 16);
  if (digits.size() != 8 || error != std::errc() || stopped != end) return false;
  *loss = std::bit_cast<float>(bits);
  return true;
}

void read_losses(Fields& top, const std::string& origin, Report& report) {
  const auto& losses = top.array("losses");
  if (losses.size() > kLossesMax) return top.fail("losses", "has too many entries");
  report.losses.reserve(losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    Fields entry(losses[i], origin, fmt::format("losses[{}]", i));
    LossPoint point{.step = entry.count("step")};
    if (!read_loss_bits(entry.text("loss_bits"), &point.loss)) {
      entry.fail("loss_bits", "is not 8 hex digits");
    }
    if (!report.losses.empty() && point.step <= report.losses.back().step) {
      entry.fail("step", "does not ascend");
    }
    top.absorb(entry);
    report.losses.push_back(point);
  }
}

void read_ranks(Fields& entry, Failure& failure) {
  for (const auto& rank : entry.array("ranks")) {
    if (!rank.is_number_unsigned() || rank.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
      return entry.fail("ranks", "holds something that is no rank");
    }
    failure.ranks.push_back(rank.get<uint32_t>());
  }
}

void read_failures(Fields& top, const std::string& origin, Report& report) {
  const auto& failures = top.array("failures");
  for (size_t i = 0; i < failures.size(); ++i) {
    Fields entry(failures[i], origin, fmt::format("failures[{}]", i));
    Failure failure{.step = entry.count("step"),
                    .at_step = entry.count_or("at_step", 0),
                    .ranks = {},
                    .detected_ms = entry.number_or_null("detected_ms"),
                    .resumed_ms = entry.number_or_null("resumed_ms"),
                    .steps_lost = entry.count("steps_lost"),
                    .bytes = {},
                    .stale_units = entry.count("stale_units"),
                    .lost_tokens = entry.count_or("lost_tokens", 0),
                    .experts_from_seed = entry.count_or("experts_from_seed", 0)};
    read_ranks(entry, failure);
    Fields bytes = entry.object("bytes");
    failure.bytes = {.replica = bytes.count("replica"),
                     .memory = bytes.count("memory"),
                     .disk = bytes.count("disk"),
                     .peer = bytes.count("peer"),
                     .tier = bytes.count("tier")};
    entry.absorb(bytes);
    read_split(entry, failure);
    top.absorb(entry);
    report.failures.push_back(std::move(failure));
  }
}

void read_lost(Fields& top, Report& report) {
  const auto& lost = top.array_or_empty("lost_tokens");
  report.lost.reserve(lost.size());
  for (size_t i = 0; i < lost.size(); ++i) {
    if (!lost[i].is_number_unsigned() || lost[i].get<uint64_t>() > INT64_MAX) {
      return top.fail("lost_tokens", fmt::format("[{}] is not a count", i));
    }
    report.lost.push_back(lost[i].get<int64_t>());
  }
}

void read_daemon_failures(Fields& top, const std::string& origin, Report& report) {
  const auto& failures = top.array_or_empty("daemon_failures");
  for (size_t i = 0; i < failures.size(); ++i) {
    Fields entry(failures[i], origin, fmt::format("daemon_failures[{}]", i));
    report.daemon_failures.push_back(
        {.step = entry.count("step"), .down_ms = entry.number_or_null("down_ms")});
    top.absorb(entry);
  }
}

void read_unsaved(Fields& top, const std::string& origin, Report& report) {
  report.saved_step = top.count_or("saved_step", 0);
  const auto& listed = top.array_or_empty("unsaved");
  for (size_t i = 0; i < listed.size(); ++i) {
    Fields entry(listed[i], origin, fmt::format("unsaved[{}]", i));
    report.unsaved.push_back({.since = entry.count("since"),
                              .until = entry.count("until"),
                              .ms = entry.number("ms"),
                              .cause = entry.text("cause"),
                              .saved = entry.flag("saved")});
    top.absorb(entry);
  }
}

ordered_json unsaved_json(const std::vector<Unsaved>& unsaved) {
  ordered_json all = ordered_json::array();
  for (const Unsaved& one : unsaved) {
    all.push_back({{"since", one.since},
                   {"until", one.until},
                   {"ms", one.ms},
                   {"cause", one.cause},
                   {"saved", one.saved}});
  }
  return all;
}

void read_loads(Fields& top, const std::string& origin, Report& report) {
  const auto& loads = top.array_or_empty("loads");
  if (loads.size() > kLossesMax) return top.fail("loads", "has too many entries");
  report.loads.reserve(loads.size());
  for (size_t i = 0; i < loads.size(); ++i) {
    Fields entry(loads[i], origin, fmt::format("loads[{}]", i));
    const StepLoad load{.step = entry.count("step"),
                        .busiest_tokens = entry.count("busiest_tokens"),
                        .max_over_mean = entry.number("max_over_mean")};
    if (!report.loads.empty() && load.step <= report.loads.back().step) {
      entry.fail("step", "does not ascend");
    }
    top.absorb(entry);
    report.loads.push_back(load);
  }
}

ordered_json loads_json(const std::vector<StepLoad>& loads) {
  ordered_json all = ordered_json::array();
  for (const StepLoad& load : loads) {
    all.push_back({{"step", load.step},
                   {"busiest_tokens", load.busiest_tokens},
                   {"max_over_mean", load.max_over_mean}});
  }
  return all;
}

ordered_json mean_of(const std::vector<StepLoad>& loads) {
  if (loads.empty()) return nullptr;
  double sum = 0;
  for (const StepLoad& load : loads) sum += load.max_over_mean;
  return sum / static_cast<double>(loads.size());
}

void read_checkpoints(Fields& checkpoints, const std::string& origin, Report& report) {
  const auto& each = checkpoints.array_or_empty("each");
  for (size_t i = 0; i < each.size(); ++i) {
    Fields entry(each[i], origin, fmt::format("checkpoints.each[{}]", i));
    report.checkpoints.each.push_back({.step = entry.count("step"),
                                       .bytes = entry.count("bytes"),
                                       .bytes_kept = entry.count_or("bytes_kept", 0),
                                       .rank_bytes_max = entry.count("rank_bytes_max"),
                                       .rank_bytes_mean = entry.number("rank_bytes_mean"),
                                       .stall_ms = entry.number("stall_ms"),
                                       .durable_ms = entry.number("durable_ms"),
                                       .timings = read_timings(entry)});
    checkpoints.absorb(entry);
  }
}

void read_pace(Fields& top, Report& report) {
  const auto experts = [&top](const char* field) {
    const uint64_t count = top.count_or(field, 0);
    if (count > std::numeric_limits<uint32_t>::max()) top.fail(field, "is too large");
    return static_cast<uint32_t>(count);
  };
  report.pace.every = top.count_or("checkpoint_every", 0);
  report.pace.experts = experts("experts_per_checkpoint");
  report.pace.experts_per_snapshot = experts("experts_per_snapshot");
  report.pace.reason = top.text_or("reason", "");
}

void read_totals(Fields& top, const std::string& origin, Report& report) {
  const uint64_t ranks = top.count("ranks");
  if (ranks > std::numeric_limits<uint32_t>::max()) top.fail("ranks", "is too large");
  report.ranks = static_cast<uint32_t>(ranks);
  report.steps = top.count("steps");
  report.tokens_per_step = top.count("tokens_per_step");
  Fields step_ms = top.object("step_ms");
  report.step_ms = {.p50 = step_ms.number("p50"), .p99 = step_ms.number("p99")};
  top.absorb(step_ms);
  Fields checkpoints = top.object("checkpoints");
  report.checkpoints = {.count = checkpoints.count("count"),
                        .bytes = checkpoints.count("bytes"),
                        .bytes_kept = checkpoints.count_or("bytes_kept", 0),
                        .stall_ms_total = checkpoints.number("stall_ms_total"),
                        .stall_ms_max = checkpoints.number("stall_ms_max"),
                        .durable_ms_p50 = checkpoints.number("durable_ms_p50"),
                        .each = {}};
  if (report.checkpoints.bytes_kept > report.checkpoints.bytes) {
    checkpoints.fail("bytes_kept", "is more than all bytes");
  }
  read_checkpoints(checkpoints, origin, report);
  top.absorb(checkpoints);
  report.plt = top.number_or("plt", 0);
  report.plt_rollback = top.number_or("plt_rollback", 0);
  read_lost(top, report);
  read_pace(top, report);
  report.on_loss = {top.text_or("on_loss", ""), top.text_or("on_loss_reason", "")};
}

}  // namespace

double Checkpoint::max_over_mean() const {
  return rank_bytes_mean > 0 ? static_cast<double>(rank_bytes_max) / rank_bytes_mean : 1;
}

Checkpoint Report::Checkpoints::busiest() const {
  const auto most = std::max_element(
      each.begin(), each.end(),
      [](const Checkpoint& a, const Checkpoint& b) { return a.rank_bytes_max < b.rank_bytes_max; });
  return most == each.end() ? Checkpoint{} : *most;
}

std::string to_json(const Report& report) {
  ordered_json losses = ordered_json::array();
  for (const LossPoint& point : report.losses) {
    losses.push_back({{"step", point.step},
                      {"loss", loss_value(point.loss)},
                      {"loss_bits", fmt::format("{:08x}", std::bit_cast<uint32_t>(point.loss))}});
  }
  ordered_json failures = ordered_json::array();
  for (const Failure& failure : report.failures) failures.push_back(failure_json(failure));
  ordered_json daemon_failures = ordered_json::array();
  for (const DaemonFailure& failure : report.daemon_failures) {
    daemon_failures.push_back(
        {{"step", failure.step}, {"down_ms", number_or_null(failure.down_ms)}});
  }
  const auto& checkpoints = report.checkpoints;
  const Checkpoint busiest = checkpoints.busiest();
  ordered_json each = ordered_json::array();
  for (const Checkpoint& checkpoint : checkpoints.each) each.push_back(checkpoint_json(checkpoint));
  const ordered_json document = {
      {"ranks", report.ranks},
      {"steps", report.steps},
      {"tokens_per_step", report.tokens_per_step},
      {"final_loss",
       report.losses.empty() ? ordered_json(nullptr) : loss_value(report.final_loss())},
      {"losses", std::move(losses)},
      {"step_ms", {{"p50", report.step_ms.p50}, {"p99", report.step_ms.p99}}},
      {"checkpoints",
       {{"count", checkpoints.count},
        {"bytes", checkpoints.bytes},
        {"bytes_kept", checkpoints.bytes_kept},
        {"stall_ms_total", checkpoints.stall_ms_total},
        {"stall_ms_max", checkpoints.stall_ms_max},
        {"durable_ms_p50", checkpoints.durable_ms_p50},
        {"rank_bytes",
         {{"max", busiest.rank_bytes_max},
          {"mean", busiest.rank_bytes_mean},
          {"max_over_mean", busiest.max_over_mean()}}},
        {"each", std::move(each)}}},
      {"checkpoint_every", report.pace.every},
      {"experts_per_checkpoint", report.pace.experts},
      {"experts_per_snapshot", report.pace.experts_per_snapshot},
      {"reason", report.pace.reason},
      {"on_loss", report.on_loss.what},
      {"on_loss_reason", report.on_loss.reason},
      {"failures", std::move(failures)},
      {"daemon_failures", std::move(daemon_failures)},
      {"saved_step", report.saved_step},
      {"unsaved", unsaved_json(report.unsaved)},
      {"replans", replans_json(report.replans)},
      {"rank_times", rank_times_json(report.rank_times)},
      {"changes", changes_json(report.changes)},
      {"plt", report.plt},
      {"plt_rollback", report.plt_rollback},
      {"lost_tokens", report.lost},
      {"loads", loads_json(report.loads)},
      {"max_over_mean", mean_of(report.loads)},
      {"exchange", exchange_json(report.exchange)}};
  return ckpt::base::dump_json(document, 1) + "\n";
}

ckpt::Result<Report> parse_report(std::string_view json, std::string_view origin) {
  const auto document = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}: not a JSON document", origin);
  }
  const std::string name(origin);
  Report report;
  Fields top(document, name, "");
  read_totals(top, name, report);
  read_losses(top, name, report);
  read_failures(top, name, report);
  read_daemon_failures(top, name, report);
  read_unsaved(top, name, report);
  read_replans(top, name, report.replans);
  read_rank_times(top, name, report.rank_times);
  read_exchange(top, report.exchange);
  read_changes(top, name, report.changes);
  read_loads(top, name, report);
  CKPT_TRY(top.status());
  return report;
}

}  // namespace moetrain::report
