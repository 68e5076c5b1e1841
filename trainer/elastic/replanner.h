// Replanner: when experts are placed anew though the members stay, and whether that pays.
//
// The tokens that were routed since it last looked stand for those to come: "the busiest rank of
// each layer has so many less to compute under the new placement". What a token costs an expert,
// and what a byte costs to move, each rank has measured; the ranks add their measures up before
// anybody decides, so that all decide alike. Nothing measured is needed to move whenever it is
// better.
//
// Pure: numbers in, numbers out. Every rank has one and calls it at the same steps with the same
// numbers, but for what it measures.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/placement/compute_placement.h"

namespace moetrain {

struct ReplanOptions {
  uint64_t every = 0;         // steps from one look to the next; 0: never
  uint64_t steps = 0;         // the run's last one: nothing is to be gained after it
  bool if_better = false;     // whatever it costs
  uint64_t expert_bytes = 0;  // to move one, moments included
};

// A placement under given loads. A layer's tokens are shared evenly by the slots of an expert.
struct Balance {
  double busiest_tokens = 0;  // of the rank that has most in each layer, added up
  double max_over_mean = 1;   // those, over what a rank has on average; 1: perfectly even
  uint32_t worst_layer = 0;   // with the largest maximum over mean
};
// routed: tokens to every expert, [layers * experts].
Balance balance_of(const ComputePlacement& placement, std::span<const int64_t> routed);

// (rank, layer, expert) that `next` has and `current` has not: what is to be moved. Both are of the
// same ranks and model.
uint64_t experts_to_move(const ComputePlacement& current, const ComputePlacement& next);

// held[rank][expert of the grid], of a placement that is in force.
std::vector<std::vector<bool>> held_by(const ComputePlacement& placement);

struct ReplanChoice {
  bool moves = false;
  Balance before;      // of the placement in force, under the tokens since the last look
  Balance after;       // of the one that was planned
  uint64_t bytes = 0;  // to be moved between all ranks
  double gain_ms = 0;  // until the next look, or the run's end
  double cost_ms = 0;  // training stands still meanwhile
};

class Replanner {
 public:
  explicit Replanner(const ReplanOptions& options) : options_(options) {}

  // From here on tokens count: an epoch begins, or the ranks have looked. routed: so far,
  // [layers * experts]; empty before the first step.
  void begin(uint64_t step, std::span<const int64_t> routed);
  // Do the ranks look at their placement after this step?
  bool due(uint64_t step) const;
  // Tokens to every expert since begin().
  std::vector<int64_t> window(std::span<const int64_t> routed) const;

  // What this rank's experts computed in a step, and the CPU time of it.
  void computed(int64_t rows, int64_t cpu_ns);
  // Experts were moved between the ranks. The fastest time counts: others waited for something
  // else as well.
  void moved(uint64_t bytes, double ms);
  // For a sum over all ranks.
  std::vector<int64_t> measured() const;

  // From the sums, at `step`.
  ReplanChoice decide(uint64_t step, std::span<const int64_t> measured,
                      const ComputePlacement& current, const ComputePlacement& next,
                      std::span<const int64_t> window) const;

 private:
  const ReplanOptions options_;
  uint64_t begun_at_ = 0;
  std::vector<int64_t> begun_with_;
  int64_t rows_ = 0;
  int64_t cpu_ns_ = 0;
  uint64_t moved_bytes_ = 0;
  int64_t moved_ns_ = 0;
};

}  // namespace moetrain
