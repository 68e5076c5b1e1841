// What one partial snapshot takes and which rank brings it, with the trainer's own selector and
// sharding; and what the usual ways of saving make of the same model, to compare with.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/pec_model.h"
#include "trainer/partial/selector.h"
#include "trainer/partial/sharding.h"

namespace bench {

struct PecPlan {
  std::vector<uint32_t> units;          // ids, ascending
  std::vector<moetrain::Share> shares;  // `unit` is an id
  uint64_t bytes = 0;
};

// Round robin over the experts of each layer, from one snapshot to the next. Expert parallel over
// all ranks without replicas: the experts of a layer lie in equal runs on ranks 0, 1, ...
class PecPlanner {
 public:
  PecPlanner(std::vector<PecUnit> units, uint32_t layers, uint32_t experts, uint32_t ranks);

  // `k` experts of each layer, 1 to all. Each call is one snapshot later.
  PecPlan next(uint32_t k, moetrain::DenseSharding dense);

  uint32_t rank_of(uint32_t expert) const { return expert * ranks_ / experts_; }

 private:
  std::vector<std::vector<bool>> select(uint32_t k);

  const std::vector<PecUnit> units_;
  const uint32_t experts_;
  const uint32_t ranks_;
  std::vector<std::vector<uint64_t>> saved_;  // [layer][expert]: in which snapshot; 0: never
  uint64_t snapshot_ = 0;
};

// Bytes of the busiest rank when everything is saved in the usual ways.
struct PecDenominators {
  uint64_t even = 0;   // all bytes in equal parts
  uint64_t zero2 = 0;  // rank 0: dense weights, its part of their sharded optimizer, its experts
  uint64_t dense_rank0 = 0;  // rank 0: all that is dense, and its experts
};
PecDenominators pec_denominators(const std::vector<PecUnit>& units, uint32_t experts,
                                 uint32_t ranks);

// The plan in as many pieces as are needed so that no rank holds more than `rank_bytes_max` of one,
// counting `fragment_overhead` for each range of its `units`. Whole units; kResourceExhausted names
// a unit of which one rank alone holds more.
ckpt::Result<std::vector<PecPlan>> split_plan(const PecPlan& plan, uint32_t ranks,
                                              uint64_t rank_bytes_max, uint64_t fragment_overhead,
                                              const std::vector<PecUnit>& units);

}  // namespace bench
