// Reference for a run that loses ranks: the same training in this process, on one rank, without
// losses. The number of ranks changes no bit (docs/internals/trainer.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "bench/common/step_run.h"
#include "formats/base/result.h"
#include "trainer/train_config.h"

namespace bench {

// After step `at`, rolls these experts (of moetrain::ExpertGrid) back to their state after step
// `version`: weights, moments and AdamW steps. All other state is kept.
struct RollBack {
  uint64_t at = 0;
  uint64_t version = 0;
  std::set<uint32_t> experts;
};

struct ReferenceRun {
  std::map<uint64_t, uint32_t> loss_bits;  // by step
  int64_t lost_tokens = 0;                 // tokens routed to the rolled back experts since then
};

// Trains from the first step to the workload's last. Errors: the data cannot be read, or the
// trainer fails.
ckpt::Result<ReferenceRun> train_reference(const StepWorkload& workload,
                                           const std::optional<RollBack>& roll_back = {});

// The configuration that the flags of run_command() produce.
moetrain::TrainConfig train_config(const StepWorkload& workload);

}  // namespace bench
