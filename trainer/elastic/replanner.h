// Replanner: decides when a group with unchanged members moves experts to a new placement.
//
// The tokens routed since the last check predict the next ones: they tell how many tokens fewer the
// busiest rank of each layer would compute under the new placement. Each rank has measured the cost
// of a token in an expert and of a moved byte. The ranks sum up their measurements before the
// decision, so that all decide alike. With `if_better`, no measurement is needed: any better
// placement is taken.
//
// Pure: numbers in, numbers out. Every rank has one and calls it at the same steps with the same
// numbers, except its own measurements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/placement/compute_placement.h"

namespace moetrain {

struct ReplanOptions {
  uint64_t every = 0;         // steps between checks; 0: never
  uint64_t steps = 0;         // the run's last one: a move after it gains nothing
  bool if_better = false;     // move regardless of the cost
  uint64_t expert_bytes = 0;  // to move one, moments included
};

// Balance of a placement under given loads. An expert's tokens are split evenly over its slots.
struct Balance {
  double busiest_tokens = 0;  // of the busiest rank of each layer, added up
  double max_over_mean = 1;   // busiest_tokens over the mean of ranks; 1: perfectly even
  uint32_t worst_layer = 0;   // the layer with the largest maximum over mean
};
// routed: tokens to every expert, [layers * experts].
Balance balance_of(const ComputePlacement& placement, std::span<const int64_t> routed);

// Number of (rank, layer, expert) in `next` that are not in `current`: experts to move. Both are of
// the same ranks and model.
uint64_t experts_to_move(const ComputePlacement& current, const ComputePlacement& next);

// held[rank][expert of the grid], of the current placement.
std::vector<std::vector<bool>> held_by(const ComputePlacement& placement);

struct ReplanChoice {
  bool moves = false;
  Balance before;      // of the current placement, under the tokens since the last check
  Balance after;       // of the planned placement
  uint64_t bytes = 0;  // to be moved between all ranks
  double gain_ms = 0;  // until the next check, or the run's end
  double cost_ms = 0;  // training is blocked meanwhile
};

class Replanner {
 public:
  explicit Replanner(const ReplanOptions& options) : options_(options) {}

  // Starts counting tokens: an epoch begins, or the ranks have checked. routed: counts so far,
  // [layers * experts]; empty before the first step.
  void begin(uint64_t step, std::span<const int64_t> routed);
  // True if the ranks check their placement after this step.
  bool due(uint64_t step) const;
  // Tokens to every expert since begin().
  std::vector<int64_t> window(std::span<const int64_t> routed) const;

  // Rows that this rank's experts computed in a step, and the CPU time for them.
  void computed(int64_t rows, int64_t cpu_ns);
  // Experts were moved between the ranks. The fastest time counts: slower ones include waits for
  // other causes.
  void moved(uint64_t bytes, double ms);
  // This rank's measurements, for a sum over all ranks.
  std::vector<int64_t> measured() const;

  // Decides at `step`, from the sums.
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
