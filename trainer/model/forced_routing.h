// ForcedRouting: makes routing as uneven as a bench wants it, whatever the router has learnt
// (`--router-skew`, `--router-trace`).
//
// Adds to the logits of every layer's router the popularity of each expert (expert_popularity.h),
// and to every (position, token, expert) a Gumbel noise of its own. The largest of such sums is an
// expert with a probability in proportion to its popularity (the Gumbel-max trick). So first
// choices follow the popularity as far as the learnt logits are small; further choices are without
// replacement. All of it is a function of the text and the step alone, never of ranks or time: runs
// with forced routing reproduce like others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/model/expert_popularity.h"
#include "trainer/model/router_trace.h"

namespace moetrain {

class ForcedRouting {
 public:
  // Follows the configuration: router_skew, `trace`, or neither. kInvalidArgument if the
  // configuration follows a trace and `trace` is null, another one or of another shape, and for a
  // trace that the configuration does not follow.
  static Result<ForcedRouting> make(const ModelConfig& config,
                                    std::shared_ptr<const RouterTrace> trace);

  // False: routing is as the router has learnt.
  bool active() const { return popularity_ != nullptr; }
  // [tokens, experts]: what is added to the logits of `layer` for these tokens, whole sequences of
  // step `step` (0 for the first). Only if active().
  std::vector<float> logits(uint32_t layer, uint64_t step, std::span<const int32_t> tokens) const;

 private:
  explicit ForcedRouting(const ModelConfig& config)
      : experts_(config.experts), seq_len_(config.seq_len) {}

  uint32_t experts_;
  uint32_t seq_len_;
  std::unique_ptr<const ExpertPopularity> popularity_;
};

}  // namespace moetrain
