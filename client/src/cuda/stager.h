// Stager: copies device memory to the arena, queued on two streams.
//
//   trainer's stream   --o stage()                              o wait_gathered() -- optimizer
//                        |                                      |
//   gather queue         +-> tables, CRCs of direct runs, clear, pack of a group of chunks -----+
//                        |                                ^                                   |
//   drain queue          +-> copy of direct runs          |        +--------------------------+
//                            \-> copy a chunk's slot to the arena --o drained
//                                copy the next                  ----o drained
//                                                         |         |
//                                                         +---------+--> poll()
//
// Small pieces are gathered: a pack writes them into a chunk's slot of the gather buffer, and the
// copy engine drains the slot. Long runs of device memory are direct (DirectRule): the copy engine
// reads them in place, while a kernel reads them for their CRC. One pack gathers a group of chunks
// into adjacent slots; the group is waited for once and drained chunk by chunk. Places, packs and
// tables are prepared group by group. The first group is a single chunk, so that the link to the
// host is busy while the host plans the next group. Kernels write CRCs straight into pinned host
// memory.
//
// A unit may be overwritten when the group with its last byte is gathered and all of its direct
// bytes are drained. Direct runs must not delay an optimizer that waits for all units. If
// everything is gathered, the last byte of a snapshot can be gathered when all bytes but one
// buffer's worth are drained. So the last buffer's worth of a snapshot, in the order of the
// trainer's pieces, is always gathered; only runs before it can be direct. Single units may be
// overwritten later than without direct runs, but never later than all units. A snapshot that fits
// the buffer has no direct runs. Because of groups, up to a quarter of the buffer, less a chunk, is
// gathered beyond that.
//
// With `ahead_bytes`, stage() plans everything, takes all places and reports errors, but queues
// only the first groups. The others are queued as chunks are drained: each advance() makes a few
// calls of CUDA, so that a trainer whose device has become idle loses only microseconds. A slice is
// a group's kernels, or the copies of one of its chunks. All other calls queue whole groups. Only
// the last snapshot can have groups that are not queued yet.
//
// Both queues have the lowest priority: pack yields to the trainer's kernels, block by block. So
// its kernels have as many blocks as fill the device, and each block ends soon. A few blocks that
// run as long as the copy would hold their multiprocessors all that time, and cost a training step
// more (measured: bench/results/gpu-nvidia-h200.md). The copy engine ignores priorities and copies
// in order, so a copy of the trainer waits for at most one chunk. This bounds the staging's use of
// the link to the host.
//
// One per session, used from the session's thread. A place is returned only after the event behind
// its copy. After a failure of the device, all snapshots that are being staged are aborted. Their
// places are returned if both queues become idle, and stay lent otherwise, since the device may
// still write to them.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/ckpt_cuda.h"
#include "client/src/cuda/device_objects.h"
#include "client/src/cuda/drains.h"
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
    uint64_t chunk_bytes = 0;   // 0: by the speed of the link (chunk_bytes_for)
    uint64_t ahead_bytes = 0;   // 0: queue everything in stage()
    uint64_t direct_bytes = 0;  // minimum length of a direct run; 0: derived from chunk_bytes
    uint32_t timeout_ms = 60'000;
  };
  static Result<std::unique_ptr<Stager>> open(ckpt_session* session, PinnedArena& arena,
                                              const Options& options);
  ~Stager();

  Status stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
               CUstream_st* stream);
  Status wait_gathered(uint32_t unit, CUstream_st* stream);
  Status poll();
  // Counts the chunks that have been drained. Queues a slice of a group if there are free slots.
  // Calls CUDA only, not the session: the next call of another kind reports a failure.
  void advance();
  // False if advance() has nothing to do.
  bool is_active() const { return !staging_.empty() && (drains_->open() > 0 || has_more()); }
  Status drain(uint32_t timeout_ms);
  size_t open_count() const { return staging_.size(); }

 private:
  // A group ends before chunk `chunks_end`.
  struct Group {
    size_t chunks_end = 0;
    GroupCrcs crcs;
    kernels::CudaEvent gathered;  // and the CRCs of its direct runs are computed
    bool awaited = false;         // by the drain queue
  };
  struct Staging {
    ckpt_snapshot* snapshot = nullptr;
    StagePlan plan;
    uint64_t first_drain = 0;  // number of its first chunk (Drains)
    std::vector<Group> groups = {};
    bool complete = false;  // all pieces are planned
    size_t arrived = 0;     // chunks whose places have been returned
    size_t arriving = 0;    // group of the next chunk to arrive
    StagingSize estimate = {};
    std::list<std::unique_ptr<StagingMemory>> memory = {};
    // Chunks whose groups' kernels are queued. The copies of the last group may not be queued yet.
    size_t queued() const { return groups.empty() ? 0 : groups.back().chunks_end; }
  };
  // Limit for queueing groups: until `chunks` chunks are queued. With only_free, a group is queued
  // only while there is a free slot for each open chunk: it waits for no slot, and the device has a
  // bounded number of queued copies.
  struct Reach {
    size_t chunks = SIZE_MAX;
    bool only_free = false;
  };
  // Position up to which the pieces have been planned.
  struct Cursor {
    std::span<const ckpt_cuda_piece> pieces;
    size_t piece = 0;
    uint64_t used = 0;     // bytes of that piece
    bool on_host = false;  // kind of memory of that piece, once used
  };

  Stager(ckpt_session* session, PinnedArena& arena, const Options& options)
      : session_(session), arena_(arena), options_(options) {}
  Status prepare();
  Status choose_chunk_bytes();
  DirectRule direct_rule(std::span<const ckpt_cuda_piece> pieces) const;
  Status try_stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
                   CUstream_st* stream);
  Status stage_pieces(Staging& staging, std::span<const ckpt_cuda_piece> pieces);
  Status reserve_place(Staging& staging, const ckpt_cuda_piece& wanted, ckpt_place* place);
  Status take_sources(Cursor& cursor, uint64_t bytes);
  Status await_chunk(const Deadline& deadline);
  Status poll_or_fail_all();
  Status hand_over_all();
  void hand_over(Staging& staging);
  void end(const Staging& staging);
  void abort_staging(ckpt_snapshot* snapshot, const Error& error);
  Status fail_all(const Error& error);
  static void return_places(const Staging& staging, size_t first_chunk);
  void reuse(Staging& staging);
  // stager_queue.cc
  Status queue_ready(Staging& staging, Reach reach);
  Status queue_more(Reach reach);
  Status queue_slice(Staging& staging);
  size_t chunks_ahead() const;
  // Chunks whose copies are queued. Only for the last staging: earlier ones are queued completely.
  size_t copied(const Staging& staging) const {
    return static_cast<size_t>(drains_->next() - staging.first_drain);
  }
  bool has_more() const {
    return !staging_.empty() && copied(staging_.back()) < staging_.back().plan.chunks().size();
  }
  StageGroup group_after(const Staging& staging) const;
  bool is_free(const StageGroup& group) const {
    return drains_->open() + group.chunks <= drains_->slots();
  }
  template <typename Queue>
  Status or_fail(const Queue& queue);
  Status queue_group(Staging& staging, const StageGroup& next);
  Status gather_group(Staging& staging, const StageGroup& next);
  // The arguments of a group's kernels.
  struct Launch {
    StagingMemory::Part part;
    kernels::PlannedPack pack;
    kernels::PlannedPack checksums;
    size_t checksums_at = 0;  // offset in the part's tables
  };
  Result<Launch> plan_launch(Staging& staging);
  void take_checksums(const Launch& launch);
  Status clear_gaps(const Staging& staging, size_t first, size_t end, std::byte* slots);
  Status drain_group(Staging& staging);
  Status drain_chunk(Staging& staging);
  Result<StagingMemory::Part> take_part(Staging& staging, const StagingSize& size);
  Result<std::unique_ptr<StagingMemory>> take_memory(const StagingSize& size);

  ckpt_session* const session_;
  PinnedArena& arena_;
  const Options options_;
  std::unique_ptr<kernels::CudaQueue> gather_;
  std::unique_ptr<kernels::CudaQueue> drain_;
  kernels::DeviceArray<std::byte> buffer_;
  uint64_t chunk_bytes_ = 0;
  kernels::CudaEvent begun_;
  EventPool events_;
  std::optional<Drains> drains_;
  std::list<Staging> staging_;
  std::list<Staging> stranded_;  // the device may still write to their places
  std::list<std::unique_ptr<StagingMemory>> spare_;
  PackLists lists_;                   // of the group being queued
  std::vector<DeviceBytes> sources_;  // of the place being planned
  std::optional<Error> failed_;       // failure to queue a group; the next call fails all snapshots
  std::optional<Error> unreported_;   // a snapshot could not be ended; returned by the next poll()
};

}  // namespace ckpt::lib
