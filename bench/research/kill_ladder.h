// One run whose ranks are killed one after another until one is left, and which ranks then rejoin.
#pragma once

#include "bench/research/kill_trial.h"
#include "bench/research/ladder_figures.h"

namespace bench {

struct Ladder {
  LadderFigures figures;
  bool same_bits = false;  // as train_reference()
};

// A checkpoint is durable before each kill: what the last ones take with them is as new as the
// rest. Ends when all have trained together again for some steps.
ckpt::Result<Ladder> run_ladder(const KillSetup& setup);

}  // namespace bench
