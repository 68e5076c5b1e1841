#include "trainer/elastic/exchange_totals.h"

#include <algorithm>

namespace moetrain {

void ExchangeTotals::add(uint64_t epoch, const EventHeader& at, const StepEvent& step) {
  const ExpertExchange& experts = step.experts;
  Step& sum = steps_[at.step];
  if (epoch < sum.epoch) return;  // read late; the step was redone
  if (epoch > sum.epoch) sum = {.epoch = epoch};
  ++sum.ranks;
  // Bytes are the same on every rank that reports them.
  sum.token_bytes = experts.token_bytes;
  sum.restore_bytes = experts.restore_bytes;
  sum.reshard_bytes = experts.reshard_bytes;
  sum.exposed_ms += experts.exposed_ms;
  sum.hidden_ms += experts.hidden_ms;
  sum.plan_waits = std::max(sum.plan_waits, experts.plan_waits);
  sum.plan_wait_ms = std::max(sum.plan_wait_ms, experts.plan_wait_ms);
  // The bound is that of the group whose rank had the most.
  if (experts.memory_bytes <= memory_bytes_) return;
  memory_bytes_ = experts.memory_bytes;
  memory_bound_ = experts.memory_bound;
}

std::optional<report::ExpertExchange> ExchangeTotals::report() const {
  if (steps_.empty()) return std::nullopt;
  report::ExpertExchange all{
      .steps = steps_.size(), .memory_bytes = memory_bytes_, .memory_bound = memory_bound_};
  for (const auto& [number, step] : steps_) {
    const auto ranks = static_cast<double>(step.ranks);
    all.token_bytes += static_cast<double>(step.token_bytes);
    all.restore_bytes += static_cast<double>(step.restore_bytes);
    all.reshard_bytes += static_cast<double>(step.reshard_bytes);
    all.exposed_ms += step.exposed_ms / ranks;
    all.hidden_ms += step.hidden_ms / ranks;
    all.plan_waits += step.plan_waits;
    all.plan_wait_ms += step.plan_wait_ms;
  }
  const auto steps = static_cast<double>(steps_.size());
  for (double* mean : {&all.token_bytes, &all.restore_bytes, &all.reshard_bytes, &all.exposed_ms,
                       &all.hidden_ms}) {
    *mean /= steps;
  }
  return all;
}

}  // namespace moetrain
