#include "trainer/train_config.h"

#include <cmath>

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

Status check_number(const char* flag, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return make_error(ErrorCode::kInvalidArgument, "--{} {}: must be from {} to {}", flag, value, low,
                    high);
}

}  // namespace

Status validate(const TrainConfig& config, uint32_t ranks) {
  CKPT_TRY(validate(config.model));
  if (ranks == 0) return make_error(ErrorCode::kInvalidArgument, "--ranks 0: at least 1 is needed");
  if (config.batch == 0 || config.micro_batches == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--batch {} --micro-batches {}: not below 1",
                      config.batch, config.micro_batches);
  }
  if (ranks > config.batch) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--ranks {}: more ranks than the {} sequences of a micro-batch (--batch, which "
        "a resumed run keeps); start with {}, others can join: --join COUNT@STEP",
        ranks, config.batch, config.batch);
  }
  if (config.model.vocab != 256) {
    return make_error(ErrorCode::kInvalidArgument, "vocabulary {}: the data is bytes, 256 tokens",
                      config.model.vocab);
  }
  if (config.sequences_per_step() > 1'000'000) {
    return make_error(ErrorCode::kInvalidArgument, "--batch {} --micro-batches {}: too large",
                      config.batch, config.micro_batches);
  }
  CKPT_TRY(check_number("lr", config.schedule.learning_rate, 0, 1e6));
  CKPT_TRY(check_number("router-skew", config.model.router_skew, 0, 100));
  CKPT_TRY(check_number("clip", config.adamw.clip_norm, 0, 1e6));
  return check_number("weight-decay", config.adamw.weight_decay, 0, 1e6);
}

}  // namespace moetrain
