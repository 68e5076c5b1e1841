// Stager: device memory -> gather buffer -> arena, all queued at once on two streams.
//
//   trainer's stream   --o stage()                        o wait_gathered() -- optimizer
//                        |                                |
//   gather queue         +-> tables, clear, pack with CRC of a group of chunks --+
//                                 ^                                  |
//   drain queue                   |           +----------------------+
//                                 |           +-> copy a chunk to the arena --o drained
//                                 |           +-> copy the next           ----o drained
//                                 |                                           |
//                                 +------ its slot is free again <------------+--> poll()
//
// A chunk fills a slot of the gather buffer. A group of them, in slots that lie together, is
// gathered by one pack, and waited for once; it is drained chunk by chunk. Places are taken, packs
// planned and their tables brought to the device group by group, the first with one chunk alone:
// the link to the host is busy while the host plans what comes next. CRCs are written by the kernel
// straight into pinned memory of the host.
//
// With `ahead_bytes`, stage() plans everything, takes all places and refuses what is wrong, but
// queues only the first groups. The others are queued as their slots become free, whenever somebody
// calls; at once if somebody waits for them. They are never those of any snapshot but the last.
//
// A unit may be overwritten when the group with its last byte is gathered: then up to a quarter of
// the buffer, less a chunk, is gathered that need not have been.
//
// Both queues have the lowest priority: pack gives way to the trainer's kernels, block by block.
// The copy engine knows no priorities. It does one copy after the other, so what the trainer copies
// meanwhile waits for one chunk at most; that is what bounds the staging's use of the link to the
// host.
//
// One per session, used from the session's thread. No place is given back before the event behind
// its copy has happened. After a failure of the device the snapshots that were being staged are
// aborted; what they had reserved is given back if both queues come to their end, and stays lent
// otherwise: nobody knows then what the device still writes.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "ckpt/ckpt_cuda.h"
#include "client/src/cuda/device_objects.h"
#include "client/src/cuda/stage_plan.h"
#include "client/src/deadline.h"
#include "formats/base/result.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {

class Stager {
 public:
  struct Options {
    int device = 0;
    uint64_t gather_bytes = 256ull << 20;
    uint64_t chunk_bytes = 16ull << 20;
    uint64_t ahead_bytes = 0;  // 0: all of it
    uint32_t timeout_ms = 60'000;
  };
  static Result<std::unique_ptr<Stager>> open(ckpt_session* session, PinnedArena& arena,
                                              const Options& options);
  ~Stager();

  Status stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
               CUstream_st* stream);
  Status wait_gathered(uint32_t unit, CUstream_st* stream);
  Status poll();
  // Queues groups whose slots are free. Calls CUDA only, not the session: what fails is said by the
  // next call of another kind.
  void advance();
  bool has_more() const {
    return !staging_.empty() && staging_.back().queued() < staging_.back().plan.chunks().size();
  }
  Status drain(uint32_t timeout_ms);
  size_t open_count() const { return staging_.size(); }

 private:
  // Chunks up to chunks_end that one pack gathers.
  struct Group {
    size_t chunks_end = 0;
    size_t first_place = 0;
    const uint32_t* crc = nullptr;  // from that place on
    kernels::CudaEvent gathered;
  };
  struct Staging {
    ckpt_snapshot* snapshot = nullptr;
    StagePlan plan;
    uint64_t first_drain = 0;  // the number of its first chunk among all that were ever queued
    std::vector<Group> groups = {};
    bool complete = false;  // all of it is planned
    size_t arrived = 0;     // chunks whose places have been given back
    size_t arriving = 0;    // the group of the next
    StagingSize estimate = {};
    std::list<std::unique_ptr<StagingMemory>> memory = {};
    size_t queued() const { return groups.empty() ? 0 : groups.back().chunks_end; }
  };
  // How far groups are queued: until so many chunks are, but none that would wait for a slot if
  // only free ones are asked for.
  struct Reach {
    size_t chunks = SIZE_MAX;
    bool only_free = false;
  };
  // How far the pieces have been taken.
  struct Cursor {
    std::span<const ckpt_cuda_piece> pieces;
    size_t piece = 0;
    uint64_t used = 0;  // of that piece
  };

  Stager(ckpt_session* session, PinnedArena& arena, const Options& options)
      : session_(session), arena_(arena), options_(options) {}
  Status prepare();
  Status try_stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
                   CUstream_st* stream);
  Status stage_pieces(Staging& staging, std::span<const ckpt_cuda_piece> pieces);
  Status reserve_place(Staging& staging, const ckpt_cuda_piece& wanted, ckpt_place* place);
  Status take_sources(Cursor& cursor, uint64_t bytes);
  Status check_piece(const ckpt_cuda_piece& piece);
  Status await_chunk(const Deadline& deadline);
  Status take_news();
  Status take_all();
  void hand_over(Staging& staging);
  void end(const Staging& staging);
  void give_up(ckpt_snapshot* snapshot, const Error& error);
  Status fail_all(const Error& error);
  static void give_back(const Staging& staging, size_t first_chunk);
  void reuse(Staging& staging);
  // stager_queue.cc
  Status queue_ready(Staging& staging, Reach reach);
  Status queue_more(Reach reach);
  size_t chunks_ahead() const;
  Status queue_group(Staging& staging, size_t count);
  Status try_queue_group(Staging& staging, size_t count);
  Status clear_gaps(const Staging& staging, size_t first, size_t end, std::byte* slots);
  Status hold_for_slot(uint64_t number);
  Status drain_chunk(const StageChunk& chunk, const std::byte* slot);
  Result<StagingMemory::Part> take_part(Staging& staging, const StagingSize& size);
  Result<std::unique_ptr<StagingMemory>> take_memory(const StagingSize& size);
  Result<kernels::CudaEvent> take_event();
  Status take_drained();
  uint64_t next_drain() const { return drained_ + drains_.size(); }

  ckpt_session* const session_;
  PinnedArena& arena_;
  const Options options_;
  std::unique_ptr<kernels::CudaQueue> gather_;
  std::unique_ptr<kernels::CudaQueue> drain_;
  kernels::DeviceArray<std::byte> buffer_;
  size_t slots_ = 0;  // of it; chunk after chunk goes round, whosever it is
  kernels::CudaEvent begun_;
  uint64_t drained_ = 0;  // chunks of all that were ever queued
  // Behind the copies of those after them, in their order. As long as one has not happened, the
  // slot of its chunk is taken.
  std::deque<kernels::CudaEvent> drains_;
  std::list<Staging> staging_;
  std::list<Staging> stranded_;  // the device may still write to what they have
  std::list<std::unique_ptr<StagingMemory>> spare_;
  std::vector<kernels::CudaEvent> spare_events_;  // has room for all there are
  size_t events_made_ = 0;
  PackLists lists_;                            // of the group that is being queued
  std::vector<DeviceBytes> sources_;           // of the place that is being planned
  std::unordered_set<const void*> reachable_;  // pieces that were asked about
  std::optional<Error> failed_;  // of a group that was to be queued; for whoever may end snapshots
  std::optional<Error> unsaid_;  // of a snapshot that could not be ended; for the next poll()
};

}  // namespace ckpt::lib
