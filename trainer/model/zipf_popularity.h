// ZipfPopularity: popularity by Zipf's law (`--router-skew Z`), the same in every step.
//
// The expert of popularity rank i (from 0) gets -Z ln(i + 1). The order of the experts is another
// one in each layer, and for each router_skew_order.
#pragma once

#include "trainer/model/config.h"
#include "trainer/model/expert_popularity.h"

namespace moetrain {

class ZipfPopularity final : public ExpertPopularity {
 public:
  // Uses config.experts, router_skew and router_skew_order.
  explicit ZipfPopularity(const ModelConfig& config)
      : experts_(config.experts), exponent_(config.router_skew), order_(config.router_skew_order) {}

  std::vector<float> logits(uint32_t layer, uint64_t step) const override;

 private:
  uint32_t experts_;
  double exponent_;
  uint32_t order_;
};

}  // namespace moetrain
