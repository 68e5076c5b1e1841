// Summary and table of failures.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "formats/base/counted.h"
#include "formats/base/parse.h"
#include "formats/base/printable.h"
#include "trainer/report/curve.h"
#include "trainer/report/render.h"
#include "trainer/report/text.h"

namespace moetrain::report {
namespace {

using Row = std::vector<std::string>;

// Columns aligned and two spaces apart; the first row is the heading. Column `left_aligned` holds
// words, the others numbers.
std::string table_text(const std::vector<Row>& rows, const std::vector<size_t>& left_aligned) {
  std::vector<int> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(static_cast<size_t>(widths[i] - display_width(row[i])), ' ');
      const bool left =
          std::find(left_aligned.begin(), left_aligned.end(), i) != left_aligned.end();
      if (i > 0) line += "  ";
      line += left ? row[i] + pad : pad + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string restored_text(const Failure& failure) {
  const BytesBySource& bytes = failure.bytes;
  const std::array<std::pair<const char*, uint64_t>, 5> sources = {{{"replica", bytes.replica},
                                                                    {"memory", bytes.memory},
                                                                    {"disk", bytes.disk},
                                                                    {"peer", bytes.peer},
                                                                    {"tier", bytes.tier}}};
  std::string text;
  for (const auto& [name, count] : sources) {
    if (count == 0) continue;
    text +=
        fmt::format("{}{} from {}", text.empty() ? "" : ", ", ckpt::base::format_size(count), name);
  }
  if (failure.experts_from_seed > 0) {
    text += fmt::format("{}{} from the seed", text.empty() ? "" : ", ",
                        ckpt::base::counted(failure.experts_from_seed, "expert"));
  }
  return text.empty() ? "nothing" : text;
}

std::string pace_text(const Pace& pace) {
  const std::string every =
      pace.every == 0 ? "after the last step" : "every " + ckpt::base::counted(pace.every, "step");
  const uint32_t copied = pace.experts_per_snapshot;
  const std::string kept =
      copied > pace.experts ? fmt::format(", {} more stay in memory", copied - pace.experts) : "";
  return fmt::format("final settings: checkpoint {}, {} per layer{} ({})\n", every,
                     ckpt::base::counted(pace.experts, "expert"), kept,
                     ckpt::base::escaped(pace.reason));
}

std::string changes_text(const std::vector<MemberChange>& changes) {
  std::string text;
  for (const MemberChange& change : changes) {
    text += fmt::format("after step {}: ", change.step);
    if (!change.joined.empty()) text += fmt::format("{} joined, ", ranks_text(change.joined));
    if (!change.left.empty()) text += fmt::format("{} left, ", ranks_text(change.left));
    text += fmt::format("{}, each expert on {} or more; {} moved in {}",
                        ckpt::base::counted(change.group, "rank"), change.effective_replicas,
                        ckpt::base::format_size(change.bytes_moved),
                        human_ms(change.plan_ms + change.migrate_ms));
    if (change.memory_bytes > 0) {
      text += fmt::format(", with {} of expert memory, of at most {}",
                          ckpt::base::format_size(change.memory_bytes),
                          ckpt::base::format_size(change.memory_bound));
    }
    text += '\n';
  }
  return text;
}

// Number of steps at the end of the run that are in no checkpoint.
uint64_t unsaved_steps(const Report& report) {
  if (report.unsaved.empty() || report.unsaved.back().saved) return 0;
  return report.unsaved.back().until - report.unsaved.back().since;
}

// Recoveries lose tokens, and so does the end of a run that did not save its last steps.
std::string plt_text(const Report& report) {
  const uint64_t unsaved = unsaved_steps(report);
  const std::string end = unsaved == 0 ? "\n"
                                       : fmt::format("; the updates of {} were not saved\n",
                                                     ckpt::base::counted(unsaved, "step"));
  if (report.plt <= 0 && report.lost.empty()) {
    return (unsaved == 0 ? "no token's update is lost" : "no recovery lost a token's update") + end;
  }
  int64_t tokens = 0;
  for (const int64_t lost : report.lost) tokens += lost;
  std::string text = "lost tokens: " +
                     lost_part_text(report.plt, report.plt_rollback, "all by the end of the run");
  if (!report.lost.empty()) {
    const auto worst = std::max_element(report.lost.begin(), report.lost.end());
    text += fmt::format(": {} tokens; expert {} of the {} of all layers lost most, {}", tokens,
                        worst - report.lost.begin(), report.lost.size(), *worst);
  }
  return text + end;
}

// Without the remedy in parentheses: the report has it, and so had the line when it happened.
std::string cause_text(const Unsaved& period) {
  return period.cause.substr(0, period.cause.find(" ("));
}

std::string unsaved_text(const Report& report, Printed steps) {
  std::string text;
  for (const Unsaved& period : report.unsaved) {
    if (!period.saved && steps == Printed::kBefore) continue;
    text += period.saved ? fmt::format("no checkpoint after step {} until step {}", period.since,
                                       period.until)
                         : unsaved_steps_text(period.since, period.until);
    text += fmt::format(" ({}): {}\n", human_ms(period.ms), cause_text(period));
  }
  if (report.unsaved.empty() || report.unsaved.back().saved) return text;
  return text +
         (report.saved_step == 0
              ? "no step is in a durable checkpoint\n"
              : fmt::format("the newest durable checkpoint is of step {}\n", report.saved_step));
}

// The trained steps; of a resumed run only those since the resume, with their numbers.
std::string steps_text(const Report& report) {
  const size_t count = report.losses.size();
  const char* plural = count == 1 ? "" : "s";
  if (count == 0 || report.losses.front().step == 1) return fmt::format("{} step{}", count, plural);
  return fmt::format("{} step{} ({} to {})", count, plural, report.losses.front().step,
                     report.losses.back().step);
}

struct OrderedRow {
  uint64_t step;
  Row cells;
};

std::string back_text(const std::optional<double>& after_ms) {
  return after_ms ? human_ms(*after_ms) : "not back";
}

OrderedRow failure_row(const Failure& failure) {
  const uint64_t step = failure.display_step();
  return {step,
          {fmt::format("{}", step), ranks_text(failure.ranks),
           failure.detected_ms ? human_ms(*failure.detected_ms) : "not known",
           back_text(failure.resumed_ms), fmt::format("{}", failure.steps_lost),
           fmt::format("{}", failure.stale_units), fmt::format("{}", failure.lost_tokens),
           restored_text(failure)}};
}

OrderedRow unsaved_row(const Unsaved& period) {
  const uint64_t first = period.since + 1;
  const std::string steps = period.saved ? fmt::format("no checkpoint until step {}", period.until)
                                         : unsaved_steps_text(period.since, period.until);
  return {first,
          {fmt::format("{}", first), "checkpoints", "-", "-", "0", "0", "0",
           fmt::format("{}; {} ({})", cause_text(period), steps, human_ms(period.ms))}};
}

}  // namespace

std::string failure_table_text(const Report& report) {
  std::vector<OrderedRow> failures;
  failures.reserve(report.failures.size() + report.daemon_failures.size() + report.unsaved.size());
  for (const Failure& failure : report.failures) failures.push_back(failure_row(failure));
  for (const DaemonFailure& failure : report.daemon_failures) {
    failures.push_back({failure.step,
                        {fmt::format("{}", failure.step), "ckptd", "-", back_text(failure.down_ms),
                         "0", "0", "0", "training continued"}});
  }
  for (const Unsaved& period : report.unsaved) failures.push_back(unsaved_row(period));
  if (failures.empty()) return "no failures\n";
  std::stable_sort(failures.begin(), failures.end(),
                   [](const OrderedRow& a, const OrderedRow& b) { return a.step < b.step; });
  std::vector<Row> rows = {{"at step", "lost", "seen after", "training after", "steps redone",
                            "stale units", "lost tokens", "restored"}};
  for (OrderedRow& failure : failures) rows.push_back(std::move(failure.cells));
  return table_text(rows, {1, 7});
}

std::string checkpoint_table_text(const Report& report) {
  const auto& each = report.checkpoints.each;
  if (each.empty()) return "no checkpoints\n";
  const auto row = [&](const char* name, auto pick) {
    return Row{name,
               ckpt::base::format_size(static_cast<uint64_t>(
                   pick([](const Checkpoint& c) { return static_cast<double>(c.bytes); }))),
               ckpt::base::format_size(static_cast<uint64_t>(pick(
                   [](const Checkpoint& c) { return static_cast<double>(c.rank_bytes_max); }))),
               fmt::format("{:.3f}", pick([](const Checkpoint& c) { return c.max_over_mean(); })),
               human_ms(pick([](const Checkpoint& c) { return c.stall_ms; })),
               human_ms(pick([](const Checkpoint& c) { return c.durable_ms; }))};
  };
  const auto at = [&](auto place) {
    return [&each, place](double (*value)(const Checkpoint&)) {
      std::vector<double> values;
      values.reserve(each.size());
      for (const Checkpoint& checkpoint : each) values.push_back(value(checkpoint));
      std::sort(values.begin(), values.end());
      return values[place(values.size())];
    };
  };
  std::vector<Row> rows = {
      {"checkpoint", "bytes", "busiest rank", "of the mean", "blocked", "durable after"}};
  if (each.size() == 1) {
    rows.push_back(row("the only one", at([](size_t) { return size_t{0}; })));
    return table_text(rows, {0});
  }
  rows.push_back(row("smallest", at([](size_t) { return size_t{0}; })));
  rows.push_back(row("median", at([](size_t n) { return (n - 1) / 2; })));
  rows.push_back(row("largest", at([](size_t n) { return n - 1; })));
  return table_text(rows, {0});
}

std::string replan_table_text(const Report& report) {
  if (report.replans.empty()) return {};
  std::vector<Row> rows = {
      {"after step", "max/mean", "planned", "gain", "cost", "to move", "planned in", "moved in"}};
  rows.reserve(report.replans.size() + 1);
  for (const Replan& replan : report.replans) {
    rows.push_back(
        {fmt::format("{}", replan.step), fmt::format("{:.3f}", replan.max_over_mean_before),
         fmt::format("{:.3f}", replan.max_over_mean_after), human_ms(replan.gain_ms),
         human_ms(replan.cost_ms), ckpt::base::format_size(replan.bytes), human_ms(replan.plan_ms),
         replan.moved ? human_ms(replan.migrate_ms) : "stayed"});
  }
  return table_text(rows, {});
}

std::string rank_table_text(const Report& report) {
  if (report.rank_times.empty()) return {};
  std::vector<Row> rows = {{"rank", "steps", "own work", "waited", "slowest in", "then by"}};
  rows.reserve(report.rank_times.size() + 1);
  for (const RankTime& time : report.rank_times) {
    const double part = 100.0 * static_cast<double>(time.slowest) /
                        static_cast<double>(std::max<uint64_t>(time.steps, 1));
    rows.push_back({fmt::format("{}", time.rank), fmt::format("{}", time.steps),
                    human_ms(time.own_ms), human_ms(time.waited_ms), fmt::format("{:.0f} %", part),
                    time.slowest == 0 ? "-" : human_ms(time.more_ms)});
  }
  return table_text(rows, {});
}

std::string exchange_table_text(const Report& report) {
  if (!report.exchange || report.exchange->memory_bound == 0) return {};
  const ExpertExchange& exchange = *report.exchange;
  const auto size = [](auto bytes) {
    return ckpt::base::format_size(static_cast<uint64_t>(bytes));
  };
  double busiest = 0;
  for (const StepLoad& load : report.loads) busiest += load.max_over_mean;
  const auto loads = static_cast<double>(std::max<size_t>(report.loads.size(), 1));
  return table_text({{"tokens/step", "restores/step", "re-shards/step", "exposed", "hidden",
                      "plan waits", "waited", "expert memory", "of at most", "max/mean tokens"},
                     {size(exchange.token_bytes), size(exchange.restore_bytes),
                      size(exchange.reshard_bytes), human_ms(exchange.exposed_ms),
                      human_ms(exchange.hidden_ms), fmt::format("{}", exchange.plan_waits),
                      human_ms(exchange.plan_wait_ms), size(exchange.memory_bytes),
                      size(exchange.memory_bound), fmt::format("{:.3f}", busiest / loads)}},
                    {});
}

std::string unsaved_steps_text(uint64_t saved, uint64_t step) {
  if (step == saved + 1) return fmt::format("step {} is in no checkpoint", step);
  return fmt::format("steps {} to {} are in no checkpoint", saved + 1, step);
}

std::string lost_part_text(double plt, double plt_rollback, std::string_view of) {
  return fmt::format(
      "{:.3f} % of {} ({:.3f} % in restarts, {:.3f} % of experts that came back alone)", 100 * plt,
      of, 100 * (plt - plt_rollback), 100 * plt_rollback);
}

namespace {

// Empty if no part is known.
std::string parts_text(const std::vector<Checkpoint>& each) {
  std::string parts;
  bool known = false;
  for (const ckpt::SnapshotPart& part : ckpt::kSnapshotParts) {
    std::vector<uint64_t> ns;
    ns.reserve(each.size());
    for (const Checkpoint& checkpoint : each) ns.push_back(checkpoint.timings.*part.ns);
    if (ns.empty()) return {};
    std::sort(ns.begin(), ns.end());
    const uint64_t median = ns[(ns.size() - 1) / 2];
    known = known || ns.back() > 0;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name,
                         human_ms(static_cast<double>(median) / 1e6));
  }
  return known ? "parts of a checkpoint (median): " + parts + "\n" : "";
}

std::string stall_text(const Report::Checkpoints& checkpoints) {
  return fmt::format("training blocked {} in all, {} at most", human_ms(checkpoints.stall_ms_total),
                     human_ms(checkpoints.stall_ms_max));
}

}  // namespace

std::string summary_text(const Report& report, Printed unsaved_steps) {
  std::string text =
      fmt::format("{} of {} tokens on {} rank{}", steps_text(report), report.tokens_per_step,
                  report.ranks, report.ranks == 1 ? "" : "s");
  if (!report.losses.empty()) {
    text += fmt::format(", loss {:.4f} -> {:.4f}", report.losses.front().loss, report.final_loss());
  }
  text += fmt::format("\nstep: {} median, {} p99\n", human_ms(report.step_ms.p50),
                      human_ms(report.step_ms.p99));
  text += changes_text(report.changes);
  text += plt_text(report);
  text += unsaved_text(report, unsaved_steps);
  const auto& checkpoints = report.checkpoints;
  if (checkpoints.count == 0) {
    const bool stalled = checkpoints.stall_ms_total > 0;
    return text + "no checkpoints" + (stalled ? "; " + stall_text(checkpoints) : "") + "\n";
  }
  const std::string kept = checkpoints.bytes_kept == 0
                               ? ""
                               : fmt::format(" written, {} in memory only",
                                             ckpt::base::format_size(checkpoints.bytes_kept));
  text += fmt::format("{} checkpoint{}, {}{}; {}; durable {} after begin (median)\n",
                      checkpoints.count, checkpoints.count == 1 ? "" : "s",
                      ckpt::base::format_size(checkpoints.bytes - checkpoints.bytes_kept), kept,
                      stall_text(checkpoints), human_ms(checkpoints.durable_ms_p50));
  if (!checkpoints.each.empty()) text += checkpoint_table_text(report);
  text += parts_text(checkpoints.each);
  if (!report.pace.reason.empty()) text += pace_text(report.pace);
  return text;
}

}  // namespace moetrain::report
