// StateSink: the state of a model on a GPU, staged into memory and restored from it as a moetrain
// with a daemon does, by the client's own stager and restorer; in place of the daemon is a
// MemorySink.
//
// All that lies on the device: values and moments of the dense parameters and of the experts that
// this rank owns. Stamps and the trainer unit, which lie in host memory, are left out.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "bench/gpu/memory_sink.h"
#include "client/src/cuda/restorer.h"
#include "client/src/cuda/stager.h"
#include "trainer/checkpoint/state_memory.h"
#include "trainer/model/model.h"

namespace bench::gpu {

using ckpt::Result;
using ckpt::Status;

// One per rank, used from its thread. The model, on a GPU, outlives it.
class StateSink {
 public:
  struct Options {
    uint64_t slab_bytes = ckpt::kSlabBytesDefault;
    uint64_t gather_bytes = 256 << 20;
    uint64_t chunk_bytes = 0;
    uint64_t ahead_bytes = 32 << 20;  // as moetrain has it
    uint32_t timeout_ms = 60'000;     // of each wait for the device
    uint64_t direct_bytes = 0;
  };
  static Result<std::unique_ptr<StateSink>> open(moetrain::Model& model, const Options& options);
  ~StateSink();

  uint64_t bytes() const { return bytes_; }
  // All that is staged, unit by unit.
  std::span<const ckpt_cuda_piece> pieces() const { return pieces_; }

  // Queues the gathering of the state as it is now, as a moetrain does: when the calling thread
  // next waits for the device, or in the next call of this. One at a time: drains the one before
  // first.
  Status stage();
  // For a step: the device overwrites the parameter when it has been gathered. A failure is the
  // device's, which does nothing more then.
  void before_write(const moetrain::WeightState& state);
  // Wherever the thread waits for the device, which calls it by itself: queues more of what was
  // staged.
  void advance() { stager_->advance(); }
  // Until all of it is in the arena and the snapshot has ended.
  Status drain();

  // What was staged last, which has been drained, into another model of the same shape and rank.
  // Every byte is there and has been checked. kCorrupt if one is wrong, kNotFound if one is
  // missing.
  Status restore(moetrain::Model& into) { return restore_from({this}, into); }
  // The same from the sinks of any ranks, of which nobody stages or restores meanwhile but by this:
  // those of a model on so many ranks together have what any rank of another number needs.
  static Status restore_from(const std::vector<StateSink*>& sinks, moetrain::Model& into);

 private:
  StateSink(moetrain::Model& model, const Options& options) : model_(model), options_(options) {}
  Status prepare();
  void stage_now();
  Status restore_pieces(const std::vector<ckpt_cuda_destination>& destinations,
                        moetrain::Device& device, std::vector<uint64_t>& restored);

  moetrain::Model& model_;
  const Options options_;
  std::vector<moetrain::StateUnit> units_;
  uint64_t bytes_ = 0;
  std::unique_ptr<ckpt_session> sink_;
  std::unique_ptr<ckpt::lib::PinnedArena> arena_;
  // Last but for what they work on: their ends wait for copies into and out of what is above.
  ckpt_snapshot snapshot_;
  bool to_be_staged_ = false;
  Status staged_;  // what became of the last
  std::vector<ckpt_cuda_piece> pieces_;
  std::map<const moetrain::WeightState*, std::vector<uint32_t>> units_of_;
  std::set<uint32_t> waited_for_;  // units, since something was staged last
  std::unique_ptr<ckpt::lib::Stager> stager_;
};

}  // namespace bench::gpu
