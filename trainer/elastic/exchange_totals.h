// ExchangeTotals: cost of exchanging tokens and experts in a run. Pure: events in, totals out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "trainer/elastic/events.h"
#include "trainer/report/report.h"

namespace moetrain {

class ExchangeTotals {
 public:
  // A rank completed a step in this epoch. Of a redone step only the last attempt counts.
  void add(uint64_t epoch, const EventHeader& at, const StepEvent& step);

  // nullopt if no step was done.
  std::optional<report::ExpertExchange> report() const;

 private:
  struct Step {
    uint64_t epoch = 0;
    uint64_t ranks = 0;
    uint64_t token_bytes = 0;
    uint64_t restore_bytes = 0;
    uint64_t reshard_bytes = 0;
    double exposed_ms = 0;  // of all ranks
    double hidden_ms = 0;
    uint64_t plan_waits = 0;  // of the rank that waited longest
    double plan_wait_ms = 0;
  };
  std::map<uint64_t, Step> steps_;
  uint64_t memory_bytes_ = 0;  // of the rank with most
  uint64_t memory_bound_ = 0;
};

}  // namespace moetrain
