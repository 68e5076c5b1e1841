// What became of a run whose ranks were killed one after another, and which grew back. Pure: events
// in, figures out.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trainer/elastic/events.h"

namespace bench {

// What the run was begun with.
struct LadderShape {
  uint32_t ranks = 0;
  uint32_t experts = 0;  // of a layer
  uint32_t slots = 0;    // of a rank, in a layer
  uint32_t replicas_min = 0;
};

struct LadderEpoch {
  uint64_t resumed_at = 0;  // step
  uint32_t group = 0;
  uint32_t effective_replicas = 0;
  uint32_t replicas_expected = 0;  // replicas_min, as far as the slots of the group allow
  int64_t lost_tokens = 0;
};

struct LadderFigures {
  std::vector<LadderEpoch> epochs;  // in which training went on
  uint64_t steps = 0;
  uint64_t idle_steps = 0;  // completed, but not by all ranks of their epoch
  int64_t lost_tokens = 0;
  uint64_t redone = 0;  // steps that were complete and were done again
  bool reached_one = false;
  bool back_to_all = false;                // later, and at the end
  std::map<uint64_t, uint32_t> loss_bits;  // by step
  // All of it as it has to be; of the losses nothing is said.
  bool good() const;
};

// `events`: all of the run, of all ranks, in any order.
LadderFigures ladder_figures(std::vector<moetrain::RankEvent> events, const LadderShape& shape);

}  // namespace bench
