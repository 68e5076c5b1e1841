// State of a model that was really trained, in this process: what checkpoints of it would hold.
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
  std::vector<std::byte> second_moments;  // likewise
};

// Trains moetrain's model as `ckptbench step` has it (2 layers of 16 experts, 1,024 tokens a step)
// up to the last of `at`, and gives the state after each of these steps. Without `data` it learns
// from the text that moetrain learns from. It is the trainer's own code on one rank; the number of
// ranks changes no bit (docs/internals/trainer.md).
ckpt::Result<std::map<uint64_t, TrainedState>> train_states(const std::string& data,
                                                            const std::set<uint64_t>& at);

// The weights as a trainer that keeps bf16 would save them: each rounded to the nearest.
std::vector<std::byte> as_bf16(ckpt::ByteView floats);

}  // namespace bench
