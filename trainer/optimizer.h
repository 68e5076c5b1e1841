// AdamW over the state that one rank owns, and the learning-rate schedule.
//
// The update is torch.optim.AdamW's (Loshchilov & Hutter, arXiv:1711.05101; bias correction,
// eps outside the root): decay first, decoupled, p -= lr * weight_decay * p. Matrices decay,
// embedding and head included; RMSNorm scales do not.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "trainer/model/model.h"

namespace moetrain {

enum class IdleExperts {
  kUpdate,  // every expert every step: decay and momentum act even without tokens
  kSkip,    // an expert that got no token in this step keeps weights and moments, bit for bit
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping
  IdleExperts idle_experts = IdleExperts::kUpdate;
};

struct ScheduleOptions {
  double learning_rate = 1e-3;  // the peak
  double final_ratio = 0.1;     // learning rate at the end, as a part of the peak
  uint64_t warmup_steps = 20;
  uint64_t total_steps = 1000;  // afterwards the rate stays at learning_rate * final_ratio
};

// Learning rate of the step that follows `step` applied ones: rises linearly to the peak in
// warmup_steps (the first step already has 1/warmup_steps of it), then falls along half a cosine.
double learning_rate(const ScheduleOptions& options, uint64_t step);

struct StepInput {
  double learning_rate = 0;
  double gradient_factor = 1;  // from clip_factor(); multiplies every gradient
  uint64_t step = 0;           // steps applied before this one; bias correction uses step + 1
  // kSkip only: tokens per expert over all ranks in this step, [layers * experts].
  std::span<const int64_t> routed_tokens;
  // The same as `step` for every expert by itself, [layers * experts]; empty: all are at `step`.
  std::span<const int64_t> expert_steps;
  // Called before values and moments are overwritten: a snapshot may still read them.
  std::function<void(const WeightState&)> before_write;
};

// Updates every dense parameter and every owned range of this rank. Local and pure in its inputs:
// ranks that hold the same elements and gradients get the same bits, wherever ranges are cut.
void adamw_step(Model& model, const AdamWOptions& options, const StepInput& input);

}  // namespace moetrain
