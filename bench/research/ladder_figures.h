// Results of a run whose ranks are killed one after another and rejoin later. Pure: events in,
// figures out.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trainer/elastic/events.h"

namespace bench {

// Configuration that the run starts with.
struct LadderShape {
  uint32_t ranks = 0;
  uint32_t experts = 0;  // per layer
  uint32_t slots = 0;    // per rank and layer
  uint32_t replicas_min = 0;
};

struct LadderEpoch {
  uint64_t resumed_at = 0;  // step
  uint32_t group = 0;
  uint32_t effective_replicas = 0;
  uint32_t replicas_expected = 0;  // replicas_min, or fewer if the group lacks slots for that many
  int64_t lost_tokens = 0;
};

struct LadderFigures {
  std::vector<LadderEpoch> epochs;  // epochs that began to train
  uint64_t steps = 0;
  uint64_t idle_steps = 0;  // completed, but not by all ranks of their epoch
  int64_t lost_tokens = 0;
  uint64_t redone = 0;  // completed steps that were repeated
  bool reached_one = false;
  bool back_to_all = false;                // all ranks are back at the end, after reached_one
  std::map<uint64_t, uint32_t> loss_bits;  // by step
  // True if every figure is as expected. Losses are not checked.
  bool good() const;
};

// `events`: all events of the run, of all ranks, in any order.
LadderFigures ladder_figures(std::vector<moetrain::RankEvent> events, const LadderShape& shape);

}  // namespace bench
