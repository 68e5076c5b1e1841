// Stager: device memory -> gather buffer -> arena, all queued at once on two streams.
//
//   trainer's stream   --o stage()                        o wait_gathered() -- optimizer
//                        |                                |
//   gather queue         +-> clear, pack with CRC --------+
//                                 ^           |
//   drain queue                   |           +-> copy to the arena --> poll()
//                                 +-- slot is free again <--+
//
// The tables of a snapshot's packs are brought to the device at once, before its first chunk; CRCs
// are written by the kernel straight into pinned memory of the host.
//
// Both have the lowest priority: pack gives way to the trainer's kernels, block by block. The copy
// engine knows no priorities. It does one copy after the other, so what the trainer copies
// meanwhile waits for one chunk at most; that is what bounds the staging's use of the link to the
// host.
//
// One per session, used from the session's thread. No place is given back before the event behind
// its copy has happened. After a failure of the device the snapshots that were being staged are
// aborted; what they had reserved is given back if both queues come to their end, and stays lent
// otherwise: nobody knows then what the device still writes.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/ckpt_cuda.h"
#include "client/src/cuda/device_objects.h"
#include "client/src/cuda/stage_plan.h"
#include "client/src/deadline.h"
#include "formats/base/result.h"
#include "kernels/cuda/queue.h"
#include "kernels/pack.h"

namespace ckpt::lib {

class Stager {
 public:
  struct Options {
    int device = 0;
    uint64_t gather_bytes = 256ull << 20;
    uint64_t chunk_bytes = 16ull << 20;
    uint32_t timeout_ms = 60'000;
  };
  static Result<std::unique_ptr<Stager>> open(ckpt_session* session, PinnedArena& arena,
                                              const Options& options);
  ~Stager();

  Status stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
               CUstream_st* stream);
  Status wait_gathered(uint32_t unit, CUstream_st* stream);
  Status poll();
  Status drain(uint32_t timeout_ms);
  size_t open_count() const { return staging_.size(); }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    kernels::CudaEvent free;  // recorded behind the copy out of it
  };
  struct Staging {
    ckpt_snapshot* snapshot = nullptr;
    StagePlan plan;
    std::vector<kernels::PlannedPack> packs = {};  // of the chunks
    std::unique_ptr<StagingMemory> memory = {};
    size_t arrived = 0;  // chunks whose places have been given back
    size_t places = 0;   // of those
  };

  Stager(ckpt_session* session, PinnedArena& arena, const Options& options)
      : session_(session), arena_(arena), options_(options) {}
  Status prepare();
  Status try_stage(Staging& staging, std::span<const ckpt_cuda_piece> pieces, CUstream_st* stream);
  Status take_news();
  Status reserve(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces, StagePlan& plan);
  Status reserve_place(ckpt_snapshot* snapshot, UnitId unit, uint64_t offset, uint64_t length,
                       ckpt_place* place);
  Status await_chunk(const Deadline& deadline);
  static void give_back(ckpt_snapshot* snapshot, const StagePlan& plan, size_t first_chunk);
  Status fail_all(const Error& error);
  Status take_all();
  Status queue_chunks(Staging& staging, const std::vector<std::byte>& tables, CUstream_st* stream);
  Status queue_chunk(Staging& staging, size_t index, size_t first_place);
  Result<bool> take_arrived(Staging& staging);
  Result<std::unique_ptr<StagingMemory>> take_memory(const StagingSize& size);

  ckpt_session* const session_;
  PinnedArena& arena_;
  const Options options_;
  std::unique_ptr<kernels::CudaQueue> gather_;
  std::unique_ptr<kernels::CudaQueue> drain_;
  kernels::DeviceArray<std::byte> buffer_;
  std::deque<Slot> slots_;
  size_t next_slot_ = 0;
  kernels::CudaEvent begun_;
  std::deque<Staging> staging_;
  std::vector<std::unique_ptr<StagingMemory>> spare_;
  std::vector<std::unique_ptr<StagingMemory>> stranded_;  // the device may still write to it
  std::set<std::pair<const void*, uint64_t>> reachable_;  // pieces that were asked about
  std::optional<Error> unsaid_;  // of a snapshot that could not be ended; for the next poll()
};

}  // namespace ckpt::lib
