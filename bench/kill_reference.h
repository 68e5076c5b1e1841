// What a run that loses ranks has to come to: the same training in this process, on one rank, where
// nothing is lost. The number of ranks changes no bit (docs/internals/trainer.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "bench/step_run.h"
#include "formats/base/result.h"
#include "trainer/train_config.h"

namespace bench {

// After step `at`, these experts (of moetrain::ExpertGrid) go back to what they were after step
// `version`: weights, moments and AdamW steps. Everything else goes on.
struct RollBack {
  uint64_t at = 0;
  uint64_t version = 0;
  std::set<uint32_t> experts;
};

struct ReferenceRun {
  std::map<uint64_t, uint32_t> loss_bits;  // by step
  int64_t lost_tokens = 0;                 // by the roll back: routed to its experts in between
};

// Trains from the first step to the workload's last. Errors: those of reading its data, and of the
// trainer.
ckpt::Result<ReferenceRun> train_reference(const StepWorkload& workload,
                                           const std::optional<RollBack>& roll_back = {});

// As run_command() has it.
moetrain::TrainConfig train_config(const StepWorkload& workload);

}  // namespace bench
