// Stager: device memory -> arena, all queued at once on two streams.
//
//   trainer's stream   --o stage()                              o wait_gathered() -- optimizer
//                        |                                      |
//   gather queue         +-> tables, CRCs of what is direct, clear, pack of a group of chunks --+
//                        |                                ^                                   |
//   drain queue          +-> copy of what is direct       |        +--------------------------+
//                            \-> copy a chunk's slot to the arena --o drained
//                                copy the next                  ----o drained
//                                                         |         |
//                                                         +---------+--> poll()
//
// Small pieces are gathered: a pack brings them into a chunk's slot of the gather buffer, whence
// the copy engine drains them. Long runs of device memory are direct (DirectRule): the copy engine
// takes them from where they are, beside a kernel that reads them for their CRC. A group of chunks
// is gathered by one pack, into slots that lie together, and waited for once; it is drained chunk
// by chunk. Places are taken, packs planned and their tables brought to the device group by group,
// the first with one chunk alone: the link to the host is busy while the host plans what comes
// next. CRCs are written by the kernels straight into pinned memory of the host.
//
// A unit may be overwritten when the group with its last byte is gathered, and all of its direct
// bytes are drained. That shall not keep an optimizer longer than gathering everything would: then
// the last byte of a snapshot can be gathered when all but as much as the buffer holds has been
// drained. So that much at the end of a snapshot, as the trainer gave its pieces, is always
// gathered; only what is in front of it can be direct. All units may be overwritten as early as
// ever, though single ones later: at the latest when all may. A snapshot that fits the buffer has
// nothing direct. With a group, up to a quarter of the buffer, less a chunk, is gathered that need
// not have been.
//
// With `ahead_bytes`, stage() plans everything, takes all places and refuses what is wrong, but
// queues only the first groups. The others are queued as chunks are drained: a few calls of CUDA at
// each advance(), so that a trainer whose device is done meanwhile is kept for microseconds. A
// group's kernels are such a slice, and so are the copies of each of its chunks. Other calls queue
// whole groups. Groups to be queued are never those of any snapshot but the last.
//
// Both queues have the lowest priority: pack gives way to the trainer's kernels, block by block. So
// its kernels have as many blocks as fill the device: each ends soon. A few that run as long as the
// copy does hold their multiprocessors all that time, and cost a training step more (measured:
// bench/results/gpu-nvidia-h200.md). The copy engine knows no priorities. It does one copy after
// the other, so what the trainer copies meanwhile waits for one chunk at most; that is what bounds
// the staging's use of the link to the host.
//
// One per session, used from the session's thread. No place is given back before the event behind
// its copy has happened. After a failure of the device the snapshots that were being staged are
// aborted; what they had reserved is given back if both queues come to their end, and stays lent
// otherwise: nobody knows then what the device still writes.
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
    uint64_t ahead_bytes = 0;   // 0: all of it
    uint64_t direct_bytes = 0;  // runs that are direct have so many at least; 0: direct_bytes_for
    uint32_t timeout_ms = 60'000;
  };
  static Result<std::unique_ptr<Stager>> open(ckpt_session* session, PinnedArena& arena,
                                              const Options& options);
  ~Stager();

  Status stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
               CUstream_st* stream);
  Status wait_gathered(uint32_t unit, CUstream_st* stream);
  Status poll();
  // Counts the chunks that have been drained. Queues a slice of a group if as many chunks are.
  // Calls CUDA only, not the session: what fails is said by the next call of another kind.
  void advance();
  // False if advance() has nothing to do.
  bool is_active() const { return !staging_.empty() && (drains_->open() > 0 || has_more()); }
  Status drain(uint32_t timeout_ms);
  size_t open_count() const { return staging_.size(); }

 private:
  // Chunks up to chunks_end.
  struct Group {
    size_t chunks_end = 0;
    GroupCrcs crcs;
    kernels::CudaEvent gathered;  // and the CRCs of what is direct in it are taken
    bool awaited = false;         // by the drain queue
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
    // Chunks whose groups' kernels are queued. The copies of the last group may not be, yet.
    size_t queued() const { return groups.empty() ? 0 : groups.back().chunks_end; }
  };
  // How far groups are queued: until so many chunks are. None that would make more chunks open than
  // there are slots, if only free ones are asked for: such a group would wait for no slot, and the
  // device has never more copies to remember than of so many chunks.
  struct Reach {
    size_t chunks = SIZE_MAX;
    bool only_free = false;
  };
  // How far the pieces have been taken.
  struct Cursor {
    std::span<const ckpt_cuda_piece> pieces;
    size_t piece = 0;
    uint64_t used = 0;     // of that piece
    bool on_host = false;  // that piece, if some of it is used
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
  // Chunks whose copies are queued. Only for the last staging: those before it are queued wholly.
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
    size_t checksums_at = 0;  // of its tables
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
  std::list<Staging> stranded_;  // the device may still write to what they have
  std::list<std::unique_ptr<StagingMemory>> spare_;
  PackLists lists_;                   // of the group that is being queued
  std::vector<DeviceBytes> sources_;  // of the place that is being planned
  std::optional<Error> failed_;  // of a group that was to be queued; for whoever may end snapshots
  std::optional<Error> unreported_;  // of a snapshot that could not be ended; for the next poll()
};

}  // namespace ckpt::lib
