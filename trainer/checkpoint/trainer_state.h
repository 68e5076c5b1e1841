// TrainerState: the `trainer` unit of a checkpoint, as a value and as bytes.
//
// The unit has a fixed size per model shape, because a run's units are registered once; inside is a
// size-prefixed FlatBuffer (trainer_state.fbs) followed by zeros. What decode() accepts is safe to
// use for a model of that shape, whatever the bytes were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/loop.h"
#include "trainer/partial/pacer.h"
#include "trainer/placement/compute_placement.h"
#include "trainer/placement/load_window.h"

namespace moetrain {

struct TrainerState {
  Progress progress;
  std::string config;  // to_json(TrainConfig)
  uint64_t corpus_bytes = 0;
  uint32_t corpus_crc32c = 0;
  ComputePlacement placement;  // when it was saved; a resume may have another
  PartialState partial;
  std::vector<ExpertStamp> stamps;  // ExpertStamps::list(); empty: no snapshot was taken
  PaceState pace;
  // Sharded experts: the counts that steps are planned from, up to progress.step.
  std::optional<LoadWindow> load_window;
  bool operator==(const TrainerState&) const = default;
};

// The unit's bytes, trainer_unit_bytes() of them. kResourceExhausted if the state does not fit.
Result<std::vector<std::byte>> encode(const TrainerState& state);

// kCorrupt unless the bytes are a state of a model with this shape: structure verified, every count
// and rank in range, every expert on some rank, as many tokens routed in each layer as in the
// first, the rest of the unit zero.
Result<TrainerState> decode_trainer_state(ckpt::ByteView unit, uint32_t layers, uint32_t experts);

}  // namespace moetrain
