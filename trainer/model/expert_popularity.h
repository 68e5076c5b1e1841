// ExpertPopularity: the popularity of each layer's experts that a bench forces on the router
// (forced_routing.h). Implementations: a law (zipf_popularity.h) and a recorded trace
// (router_trace.h).
#pragma once

#include <cstdint>
#include <vector>

namespace moetrain {

class ExpertPopularity {
 public:
  virtual ~ExpertPopularity() = default;

  // [experts]: added to the logits of this layer's experts in step `step` (0 for the first): the
  // natural logarithm of the expert's share of the tokens, plus any constant. Finite. Depends on
  // the arguments alone.
  virtual std::vector<float> logits(uint32_t layer, uint64_t step) const = 0;
};

}  // namespace moetrain
