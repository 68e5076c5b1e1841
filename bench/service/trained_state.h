// State of a model trained in this process: the content of its checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace bench {

// All parameters in order, as fp32: the master state of the trainer, whatever its precision.
struct TrainedState {
  std::vector<std::byte> weights;
  std::vector<std::byte> first_moments;   // of AdamW
  std::vector<std::byte> second_moments;  // of AdamW
};

// Trains moetrain's model in the shape of `ckptbench step` (2 layers of 16 experts, 1,024 tokens a
// step) up to the last step of `at`, and returns the state after each of these steps. `data`:
// training text; empty: moetrain's own text. Uses the trainer's code on one rank; the number of
// ranks changes no bit (docs/internals/trainer.md).
ckpt::Result<std::map<uint64_t, TrainedState>> train_states(const std::string& data,
                                                            const std::set<uint64_t>& at);

// The weights as saved by a trainer that keeps bf16: each rounded to nearest.
std::vector<std::byte> as_bf16(ckpt::ByteView floats);

}  // namespace bench
