#include "bench/step_events.h"

#include <algorithm>
#include <map>
#include <optional>

#include "bench/paired.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using moetrain::RankEvent;
using Kind = RankEvent::Kind;

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

  void add_step(const RankEvent& event) {
    if (event.step > window.first && event.step <= window.last) {
      double& stall_ms = stalls_ms[event.step];
      stall_ms = std::max(stall_ms, event.stall_ms);
    }
    if (event.rank != 0) return;
    if (event.step > window.first && event.step <= window.last) {
      busiest_tokens += static_cast<double>(event.busiest_rows);
      max_over_mean += event.max_over_mean;
    }
    if (event.step == window.first) begin_ns = event.time_ns;
    if (event.step == window.last) end_ns = event.time_ns;
  }
  // The snapshot of a step lies between it and the next one.
  void add_snapshot(const RankEvent& event) {
    if (event.step < window.first || event.step >= window.last) return;
    if (!event.durable) {
      ++failures;
      return;
    }
    bytes[event.step] += event.bytes;
    durable_ms.push_back(event.durable_ms);
  }

  const StepWindow window;
  std::optional<uint64_t> begin_ns;
  std::optional<uint64_t> end_ns;
  std::map<uint64_t, double> stalls_ms;  // by step, of the slowest rank
  std::map<uint64_t, uint64_t> bytes;    // by step, of all ranks
  std::vector<double> durable_ms;
  uint64_t failures = 0;
  double busiest_tokens = 0;  // added up
  double max_over_mean = 0;
};

}  // namespace

ckpt::Result<StepFigures> step_figures(const std::vector<RankEvent>& events,
                                       const StepWindow& window) {
  CKPT_ASSERT(window.first < window.last);
  Collector seen(window);
  for (const RankEvent& event : events) {
    if (event.kind == Kind::kStep) seen.add_step(event);
    if (event.kind == Kind::kSnapshot) seen.add_snapshot(event);
    if (event.kind == Kind::kGroupLost) {
      return make_error(ErrorCode::kFailedPrecondition, "rank {} lost its group at step {}: {}",
                        event.rank, event.step, event.text);
    }
  }
  if (!seen.begin_ns || !seen.end_ns || *seen.end_ns <= *seen.begin_ns) {
    return make_error(ErrorCode::kFailedPrecondition, "the run did not do steps {} to {}",
                      window.first, window.last);
  }
  const auto steps = static_cast<double>(window.last - window.first);
  StepFigures figures{.snapshots = seen.bytes.size(),
                      .failures = seen.failures,
                      .busiest_tokens = seen.busiest_tokens / steps,
                      .max_over_mean = seen.max_over_mean / steps};
  figures.step_seconds = static_cast<double>(*seen.end_ns - *seen.begin_ns) / 1e9 / steps;
  figures.stall_seconds = median(values_of(seen.stalls_ms)) / 1e3;
  if (seen.bytes.empty()) return figures;
  figures.snapshot_bytes = static_cast<uint64_t>(median(values_of(seen.bytes)));
  figures.durable_seconds = median(seen.durable_ms) / 1e3;
  return figures;
}

}  // namespace bench
