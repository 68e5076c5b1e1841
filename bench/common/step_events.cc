#include "bench/common/step_events.h"

#include <algorithm>
#include <map>

#include "bench/common/paired.h"
#include "trainer/elastic/exchange_totals.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using moetrain::EventHeader;
using moetrain::GroupLostEvent;
using moetrain::RankEvent;
using moetrain::SnapshotEvent;
using moetrain::StepEvent;

namespace {

template <typename Value>
std::vector<double> values_of(const std::map<uint64_t, Value>& by_step) {
  std::vector<double> values;
  values.reserve(by_step.size());
  for (const auto& [step, value] : by_step) values.push_back(static_cast<double>(value));
  return values;
}

// Collects what lies in the window.
struct Collector {
  explicit Collector(const StepWindow& of) : window(of) {}

  void on(const EventHeader& at, const StepEvent& step) {
    const bool in_window = at.step > window.first && at.step <= window.last;
    if (in_window) {
      double& stall_ms = stalls_ms[at.step];
      stall_ms = std::max(stall_ms, step.stall_ms);
      exchange.add(0, at, step);
    }
    if (at.rank != 0) return;
    if (in_window) {
      busiest_tokens += static_cast<double>(step.busiest_rows);
      max_over_mean += step.max_over_mean;
    }
    ended_ns[at.step] = at.time_ns;
  }
  // The snapshot of a step lies between it and the next one.
  void on(const EventHeader& at, const SnapshotEvent& snapshot) {
    if (at.step < window.first || at.step >= window.last) return;
    if (!snapshot.durable) {
      ++failures;
      return;
    }
    bytes[at.step] += snapshot.bytes;
    durable_ms.push_back(snapshot.durable_ms);
  }
  void on(const EventHeader& at, const GroupLostEvent& lost) {
    if (disturbed.ok()) {
      disturbed =
          make_error(ErrorCode::kFailedPrecondition, "rank {} lost its group at step {}: {}",
                     at.rank, at.step, lost.reason);
    }
  }
  template <typename Other>
  void on(const EventHeader&, const Other&) {}

  // Time from the end of one step to the end of another, on rank 0.
  double seconds(uint64_t begin, uint64_t end) const {
    const uint64_t begin_ns = ended_ns.at(begin);
    return static_cast<double>(std::max(ended_ns.at(end), begin_ns) - begin_ns) / 1e9;
  }

  const StepWindow window;
  std::map<uint64_t, uint64_t> ended_ns;  // by step
  std::map<uint64_t, double> stalls_ms;   // by step, of the slowest rank
  std::map<uint64_t, uint64_t> bytes;     // by step, of all ranks
  std::vector<double> durable_ms;
  uint64_t failures = 0;
  double busiest_tokens = 0;  // added up
  double max_over_mean = 0;
  moetrain::ExchangeTotals exchange;
  ckpt::Status disturbed;  // the error of a run that did a step again
};

Result<Collector> collected(const std::vector<RankEvent>& events, const StepWindow& window) {
  CKPT_ASSERT(window.first < window.last);
  Collector seen(window);
  for (const RankEvent& event : events) {
    std::visit([&](const auto& body) { seen.on(event.header, body); }, event.body);
  }
  CKPT_TRY(seen.disturbed);
  for (uint64_t step = window.first; step <= window.last; ++step) {
    if (seen.ended_ns.contains(step)) continue;
    return make_error(ErrorCode::kFailedPrecondition, "the run did not do steps {} to {}",
                      window.first, window.last);
  }
  return seen;
}

StepFigures figures_of(const Collector& seen) {
  const StepWindow& window = seen.window;
  const auto steps = static_cast<double>(window.last - window.first);
  StepFigures figures{
      .snapshots = seen.bytes.size(),
      .failures = seen.failures,
      .busiest_tokens = seen.busiest_tokens / steps,
      .max_over_mean = seen.max_over_mean / steps,
      .exchange = seen.exchange.report().value_or(moetrain::report::ExpertExchange())};
  figures.step_seconds = seen.seconds(window.first, window.last) / steps;
  if (seen.bytes.empty()) return figures;
  std::vector<double> stalls_ms;
  for (const auto& [step, stall_ms] : seen.stalls_ms) {
    if (seen.bytes.contains(step - 1)) stalls_ms.push_back(stall_ms);
  }
  figures.stall_seconds = median(stalls_ms) / 1e3;
  figures.snapshot_bytes = static_cast<uint64_t>(median(values_of(seen.bytes)));
  figures.durable_seconds = median(seen.durable_ms) / 1e3;
  return figures;
}

}  // namespace

Result<StepFigures> step_figures(const std::vector<RankEvent>& events, const StepWindow& window) {
  CKPT_ASSIGN(const Collector seen, collected(events, window));
  return figures_of(seen);
}

Result<uint32_t> loss_bits_of(const std::vector<RankEvent>& events, uint64_t step) {
  for (const RankEvent& event : events) {
    const auto* done = event.as<moetrain::StepEvent>();
    if (done != nullptr && event.header.step == step) return done->loss_bits;
  }
  return make_error(ErrorCode::kNotFound, "no rank told the loss of step {}", step);
}

Result<TurnFigures> turn_figures(const std::vector<RankEvent>& events, const StepWindow& window,
                                 uint64_t turn_steps) {
  CKPT_ASSERT(turn_steps >= 2);
  CKPT_ASSIGN(const Collector seen, collected(events, window));
  TurnFigures turns{.figures = figures_of(seen), .pairs = {}};
  const auto step_seconds = [&](uint64_t turn) {
    const uint64_t begin = turn * turn_steps + 1;
    const uint64_t end = (turn + 1) * turn_steps;
    return seen.seconds(begin, end) / static_cast<double>(end - begin);
  };
  // Snapshots are taken in odd turns.
  for (uint64_t turn = 0; (turn + 2) * turn_steps <= window.last; turn += 2) {
    if (turn * turn_steps < window.first) continue;
    turns.pairs.push_back({step_seconds(turn), step_seconds(turn + 1)});
  }
  return turns;
}

}  // namespace bench
