// The bounds of a step's number.
#pragma once

#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckpt {

// Searches of history use the next number for "the newest", so a commit of that step could not be
// listed or found.
inline constexpr Step kStepMax = ~Step{0} - 1;

// kInvalidArgument for a step that a commit cannot have.
inline Status check_step(Step step) {
  if (step <= kStepMax) return {};
  return make_error(ErrorCode::kInvalidArgument, "a commit's step is a number from 0 to {}",
                    kStepMax);
}

}  // namespace ckpt
