#include "trainer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/adamw.h"

namespace moetrain {
namespace {

void update(WeightState& state, ckpt::kernels::AdamWStep step, const StepInput& input) {
  if (input.before_write) input.before_write(state);
  if (state.is_norm) step.weight_decay = 0;
  state.value.device()->adamw_update(step, state.grad, state.value, state.m, state.v,
                                     state.rounded);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, uint64_t step) {
  const double peak = options.learning_rate;
  if (step < options.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  const double lowest = peak * options.final_ratio;
  if (step >= options.total_steps) return lowest;
  const double progress = static_cast<double>(step - options.warmup_steps) /
                          static_cast<double>(options.total_steps - options.warmup_steps);
  return lowest + (peak - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

void adamw_step(Model& model, const AdamWOptions& options, const StepInput& input) {
  const bool skip_idle = options.idle_experts == IdleExperts::kSkip;
  const size_t experts = model.config().experts;
  CKPT_ASSERT(!skip_idle || input.routed_tokens.size() == model.config().layers * experts);
  CKPT_ASSERT(input.expert_steps.empty() ||
              input.expert_steps.size() == model.config().layers * experts);
  ckpt::kernels::AdamWStep step{input.learning_rate, options.beta1,        options.beta2,
                                options.eps,         options.weight_decay, input.gradient_factor,
                                input.step + 1};
  for (Parameter& parameter : model.dense()) update(parameter, step, input);
  for (OwnedRange& range : model.experts().owned()) {
    const size_t at = range.layer * experts + range.expert;
    if (skip_idle && input.routed_tokens[at] == 0) continue;
    if (!input.expert_steps.empty()) step.step = static_cast<uint64_t>(input.expert_steps[at]) + 1;
    update(range, step, input);
  }
}

}  // namespace moetrain
