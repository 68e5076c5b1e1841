// StateSink: stages the state of a model on a GPU into memory and restores it, as moetrain does
// with a daemon. Uses the client's own stager and restorer; a MemorySink takes the place of the
// daemon.
//
// Covers all state on the device: values and moments of the dense parameters and of the experts
// that this rank owns. Leaves out stamps and the trainer unit, which lie in host memory.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "bench/service/gpu/memory_sink.h"
#include "client/src/cuda/restorer.h"
#include "client/src/cuda/stager.h"
#include "trainer/checkpoint/state_memory.h"
#include "trainer/model/model.h"

namespace bench::gpu {

using ckpt::Result;
using ckpt::Status;

// One per rank, used from the thread of its rank. The model, on a GPU, must outlive the sink.
class StateSink {
 public:
  struct Options {
    uint64_t slab_bytes = ckpt::kSlabBytesDefault;
    uint64_t gather_bytes = 256 << 20;
    uint64_t chunk_bytes = 0;
    uint64_t ahead_bytes = 32 << 20;  // the value of moetrain
    uint32_t timeout_ms = 60'000;     // for each wait for the device
    uint64_t direct_bytes = 0;
  };
  static Result<std::unique_ptr<StateSink>> open(moetrain::Model& model, const Options& options);
  ~StateSink();

  // Time that the calling thread spent in calls of this object, by what they do.
  struct HostSeconds {
    double stage = 0;         // plans the snapshot and queues its first groups
    double advance = 0;       // queues the other groups
    double before_write = 0;  // makes the device wait before it overwrites a unit
    double drain = 0;         // waits for the rest, and ends the snapshot
    double total() const { return stage + advance + before_write + drain; }
  };

  uint64_t bytes() const { return bytes_; }
  ckpt::MutableByteView arena() const { return sink_->arena; }
  // Since the last call of this.
  HostSeconds take_host_seconds() { return std::exchange(host_seconds_, {}); }
  // All staged pieces, by unit.
  std::span<const ckpt_cuda_piece> pieces() const { return pieces_; }

  // Requests a snapshot of the current state. Like moetrain, queues the gathering when the calling
  // thread next waits for the device, or in the next call of this object. Drains the previous
  // snapshot first.
  Status stage();
  // Call before a step writes the parameter: the device overwrites it only after it was gathered.
  // A failure makes the queue of the device fail, which then does no more work.
  void before_write(const moetrain::WeightState& state);
  // Queues more of the staged snapshot. The device calls this whenever the thread waits for it, so
  // that callers need not.
  void advance();
  // Waits until the whole snapshot is in the arena and has ended.
  Status drain();

  // Restores the last snapshot, which must have been drained, into another model of the same shape
  // and rank. Checks that every byte is present and matches its CRC. kCorrupt if a byte is wrong,
  // kNotFound if a byte is missing.
  Status restore(moetrain::Model& into) { return restore_from({this}, into); }
  // Restores from the sinks of several ranks; no other thread may use them during the call. The
  // sinks of all ranks together hold what a rank of any other number of ranks needs.
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
  std::unique_ptr<MemorySink> sink_;
  std::unique_ptr<ckpt::lib::PinnedArena> arena_;
  // Last members except for their inputs: destructors wait for copies into and out of those above.
  SinkSnapshot snapshot_;
  bool to_be_staged_ = false;
  Status staged_;  // result of the last stage_now()
  HostSeconds host_seconds_;
  std::vector<ckpt_cuda_piece> pieces_;
  std::map<const moetrain::WeightState*, std::vector<uint32_t>> units_of_;
  std::set<uint32_t> waited_for_;  // units gathered before a write, since the last stage()
  std::unique_ptr<ckpt::lib::Stager> stager_;
};

}  // namespace bench::gpu
