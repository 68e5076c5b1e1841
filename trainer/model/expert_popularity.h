// ExpertPopularity: how popular the experts of each layer are, where a bench forces it on the
// router (forced_routing.h). Implemented by a law (zipf_popularity.h) and by a recorded trace
// (router_trace.h).
#pragma once

#include <cstdint>
#include <vector>

namespace moetrain {

class ExpertPopularity {
 public:
  virtual ~ExpertPopularity() = default;

  // [experts]: what an expert of this layer gets on its logits in step `step` (0 for the first):
  // the natural logarithm of its part of the tokens, plus any constant. Finite. A function of the
  // arguments alone.
  virtual std::vector<float> logits(uint32_t layer, uint64_t step) const = 0;
};

}  // namespace moetrain
