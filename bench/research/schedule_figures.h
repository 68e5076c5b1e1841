// Lead of a rank's exchanges of sharded experts: how early each starts, counted in operations of
// the rank's thread. Pure: the events of a schedule trace in, figures out.
//
// The count is the same on any machine. Whether an exchange then runs beside the computation
// depends on the cores: StepEvent has the times.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/elastic/events.h"

namespace bench {

// Exchanges of one kind, of all ranks and traced steps.
struct ExchangeLead {
  uint64_t exchanges = 0;
  // Layers whose experts the rank computes between the start of an exchange and the wait for it:
  // mean. 0: every exchange is waited for at once.
  double layers = 0;
};

struct ScheduleFigures {
  uint64_t steps = 0;  // that were traced, of all ranks
  ExchangeLead restores;
  ExchangeLead reshards;
};

// All zero where nothing was traced. kCorrupt if a trace left spans out, or if a step has waits
// that belong to no exchange.
ckpt::Result<ScheduleFigures> schedule_figures(const std::vector<moetrain::RankEvent>& events);

}  // namespace bench
