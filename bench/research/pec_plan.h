// Plan of a partial snapshot: its units and the rank that saves each, by the trainer's own selector
// and sharding. For comparison, the bytes of the usual ways to save the same model.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/research/pec_model.h"
#include "trainer/partial/selector.h"
#include "trainer/partial/sharding.h"

namespace bench {

struct PecPlan {
  std::vector<uint32_t> units;          // ids, ascending
  std::vector<moetrain::Share> shares;  // `unit` is an id
  uint64_t bytes = 0;
};

// Selects round robin over the experts of each layer, from one snapshot to the next. Experts are
// parallel over all ranks without replicas: each rank holds a contiguous range of each layer's.
class PecPlanner {
 public:
  PecPlanner(std::vector<PecUnit> units, uint32_t layers, uint32_t experts, uint32_t ranks);

  // Plan of the next snapshot, with `k` experts of each layer, 1 to all.
  PecPlan next(uint32_t k, moetrain::DenseSharding dense);

  uint32_t rank_of(uint32_t expert) const { return expert * ranks_ / experts_; }

 private:
  std::vector<std::vector<bool>> select(uint32_t k);

  const std::vector<PecUnit> units_;
  const uint32_t experts_;
  const uint32_t ranks_;
  std::vector<std::vector<uint64_t>> saved_;  // [layer][expert]: number of its snapshot; 0: never
  uint64_t snapshot_ = 0;
};

// Bytes of the busiest rank when everything is saved in the usual ways.
struct PecDenominators {
  uint64_t even = 0;   // all bytes split evenly
  uint64_t zero2 = 0;  // rank 0: dense weights, its shard of their optimizer state, its experts
  uint64_t dense_rank0 = 0;  // rank 0: all dense units, and its experts
};
PecDenominators pec_denominators(const std::vector<PecUnit>& units, uint32_t experts,
                                 uint32_t ranks);

// Splits the plan so that no rank holds more than `rank_bytes_max` of any part, counting
// `fragment_overhead` for each range of its `units`. Units are not split. kResourceExhausted names
// a unit of which one rank alone holds more.
ckpt::Result<std::vector<PecPlan>> split_plan(const PecPlan& plan, uint32_t ranks,
                                              uint64_t rank_bytes_max, uint64_t fragment_overhead,
                                              const std::vector<PecUnit>& units);

}  // namespace bench
