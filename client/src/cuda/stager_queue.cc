// What of the stager puts work into its two queues, group by group.
#include <cuda_runtime.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/src/cuda/stager.h"
#include "client/src/out_of_memory.h"

namespace ckpt::lib {

// Of the snapshot that was staged last: of all others everything is queued.
Status Stager::queue_more(Reach reach) {
  return has_more() ? queue_ready(staging_.back(), reach) : ok_status();
}

size_t Stager::chunks_ahead() const {
  if (options_.ahead_bytes == 0) return SIZE_MAX;
  return (options_.ahead_bytes - 1) / options_.chunk_bytes + 1;
}

// Groups of chunks that stay as they are; the last one may be smaller only if nothing is added.
Status Stager::queue_ready(Staging& staging, Reach reach) {
  const bool is_closed = staging.plan.ready() == staging.plan.chunks().size();
  for (;;) {
    const size_t left = staging.plan.ready() - staging.queued();
    const size_t wanted = group_chunks(staging.groups.size(), next_drain() % slots_, slots_);
    if (left == 0 || (left < wanted && !is_closed)) return ok_status();
    const size_t count = std::min(left, wanted);
    const bool is_free = next_drain() + count <= drained_ + slots_;
    if (staging.queued() >= reach.chunks || (reach.only_free && !is_free)) return ok_status();
    CKPT_TRY(queue_group(staging, count));
  }
}

// Whatever goes wrong in here, nobody knows how far the group came: nothing more is queued, and
// whoever may speak to the session fails all snapshots.
Status Stager::queue_group(Staging& staging, size_t count) {
  Status queued;
  try {
    queued = try_queue_group(staging, count);
  } catch (const std::bad_alloc&) {
    queued = Error{ErrorCode::kResourceExhausted, kOutOfMemory};
  }
  if (!queued.ok()) failed_ = queued.error();
  return queued;
}

Status Stager::try_queue_group(Staging& staging, size_t count) {
  const std::vector<StageChunk>& chunks = staging.plan.chunks();
  const size_t first = staging.queued();
  const size_t end = first + count;
  staging.plan.list(first, end, lists_);
  const StagingSize size{.places = lists_.ranges.size(),
                         .table_bytes = kernels::pack_table_bytes(
                             lists_.pieces.size(), lists_.ranges.size(), lists_.bytes)};
  CKPT_ASSIGN(const StagingMemory::Part part, take_part(staging, size));
  const kernels::PlannedPack planned =
      plan_pack(lists_.pieces, lists_.ranges, {part.host_tables, size.table_bytes});
  CKPT_ASSIGN(kernels::CudaEvent gathered, take_event());
  Group& group = staging.groups.emplace_back(Group{.chunks_end = end,
                                                   .first_place = staging.plan.first_place(first),
                                                   .crc = part.crc,
                                                   .gathered = std::move(gathered)});

  std::byte* slot = buffer_.data() + next_drain() % slots_ * options_.chunk_bytes;
  kernels::copy(*gather_, part.tables, part.host_tables, planned.table_bytes);
  // Slots become free one after the other.
  CKPT_TRY(hold_for_slot(next_drain() + count - 1));
  CKPT_TRY(clear_gaps(staging, first, end, slot));
  kernels::pack(*gather_, planned, part.tables, slot, part.crc);
  CKPT_TRY(group.gathered.record(gather_->stream()));
  CKPT_TRY(group.gathered.hold(drain_->stream()));
  for (size_t i = first; i < end; ++i, slot += options_.chunk_bytes) {
    CKPT_TRY(drain_chunk(chunks[i], slot));
  }
  return ok_status();
}

// Gathering goes on when what was in the slot of chunk `number` before has been drained.
Status Stager::hold_for_slot(uint64_t number) {
  if (number < drained_ + slots_) return ok_status();
  return drains_[number - slots_ - drained_].hold(gather_->stream());
}

// One call from the first slot with gaps to the last, whatever is between.
Status Stager::clear_gaps(const Staging& staging, size_t first, size_t end, std::byte* slots) {
  const std::vector<StageChunk>& chunks = staging.plan.chunks();
  while (first < end && !chunks[end - 1].has_gaps) --end;
  if (first == end) return ok_status();
  size_t begin = first;
  while (!chunks[begin].has_gaps) ++begin;
  const size_t bytes = (end - 1 - begin) * options_.chunk_bytes + chunks[end - 1].bytes;
  return kernels::cuda_status(
      cudaMemsetAsync(slots + (begin - first) * options_.chunk_bytes, 0, bytes, gather_->stream()),
      "clearing");
}

Status Stager::drain_chunk(const StageChunk& chunk, const std::byte* slot) {
  CKPT_ASSIGN(kernels::CudaEvent drained, take_event());
  drains_.push_back(std::move(drained));
  CKPT_TRY(kernels::cuda_status(
      cudaMemcpyAsync(chunk.to, slot, chunk.bytes, cudaMemcpyDeviceToHost, drain_->stream()),
      "draining to the arena"));
  return drains_.back().record(drain_->stream());
}

Result<StagingMemory::Part> Stager::take_part(Staging& staging, const StagingSize& size) {
  if (staging.memory.empty() || !staging.memory.back()->fits(size)) {
    CKPT_ASSIGN(
        std::unique_ptr<StagingMemory> memory,
        take_memory({.places = std::max(size.places, staging.estimate.places),
                     .table_bytes = std::max(size.table_bytes, staging.estimate.table_bytes)}));
    staging.memory.push_back(std::move(memory));
  }
  return staging.memory.back()->take(size);
}

Result<std::unique_ptr<StagingMemory>> Stager::take_memory(const StagingSize& size) {
  const auto found = std::find_if(spare_.begin(), spare_.end(),
                                  [&](const auto& memory) { return memory->fits(size); });
  if (found != spare_.end()) {
    std::unique_ptr<StagingMemory> memory = std::move(*found);
    spare_.erase(found);
    return memory;
  }
  // All that are spare are too small. They stay, since CUDA waits for the whole device before it
  // frees; the next one is at least twice as large, so there are never many.
  const size_t factor = spare_.empty() ? 1 : 2;
  return StagingMemory::make(
      {.places = factor * size.places, .table_bytes = factor * size.table_bytes});
}

Result<kernels::CudaEvent> Stager::take_event() {
  if (!spare_events_.empty()) {
    kernels::CudaEvent event = std::move(spare_events_.back());
    spare_events_.pop_back();
    return event;
  }
  // All of them will be spare one day, and to say so must not fail.
  if (spare_events_.capacity() <= events_made_) spare_events_.reserve(2 * events_made_ + 1);
  kernels::CudaEvent event;
  CKPT_TRY(event.make());
  ++events_made_;
  return event;
}

Status Stager::take_drained() {
  while (!drains_.empty()) {
    CKPT_ASSIGN(const bool here, drains_.front().happened());
    if (!here) break;  // the drain queue is in order
    spare_events_.push_back(std::move(drains_.front()));
    drains_.pop_front();
    ++drained_;
  }
  return ok_status();
}

}  // namespace ckpt::lib
