// The part of Stager that queues work, group by group.
#include <cuda_runtime.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/src/cuda/stager.h"
#include "client/src/out_of_memory.h"
#include "formats/base/checked.h"

namespace ckpt::lib {

namespace {
constexpr size_t kTableAlignment = 16;  // kernels/pack.h
}  // namespace

// Queues more of the last staged snapshot; all earlier snapshots are fully queued.
Status Stager::queue_more(Reach reach) {
  return has_more() ? queue_ready(staging_.back(), reach) : ok_status();
}

size_t Stager::chunks_ahead() const {
  if (options_.ahead_bytes == 0) return SIZE_MAX;
  return (options_.ahead_bytes - 1) / chunk_bytes_ + 1;
}

// Queues groups of closed chunks; the last group may be smaller only if no chunk will be added.
Status Stager::queue_ready(Staging& staging, Reach reach) {
  CKPT_TRY(or_fail([&] { return drain_group(staging); }));
  for (;;) {
    const StageGroup next = group_after(staging);
    if (next.chunks == 0 || staging.queued() >= reach.chunks) return ok_status();
    if (reach.only_free && !is_free(next)) return ok_status();
    CKPT_TRY(queue_group(staging, next));
  }
}

// The next group that can be queued, or a group without chunks.
StageGroup Stager::group_after(const Staging& staging) const {
  const std::vector<StageChunk>& chunks = staging.plan.chunks();
  const bool is_closed = staging.plan.ready() == chunks.size();
  const auto ready =
      std::span(chunks).subspan(staging.queued(), staging.plan.ready() - staging.queued());
  const StageGroup next =
      next_group(ready, staging.groups.size(), drains_->next_slot(), drains_->slots());
  return next.is_whole || is_closed ? next : StageGroup{};
}

// Queues a slice of a few calls: a group's kernels, or the copies of one of its chunks. The device
// may become idle in the middle of a longer call, and the trainer could not queue work until it
// ends.
Status Stager::queue_slice(Staging& staging) {
  if (copied(staging) < staging.queued()) {
    return or_fail([&] { return drain_chunk(staging); });
  }
  const StageGroup next = group_after(staging);
  if (next.chunks == 0 || !is_free(next)) return ok_status();
  return or_fail([&] { return gather_group(staging, next); });
}

// After a failure of `queue` the group's progress is unknown: nothing more is queued, and the next
// caller that may use the session fails all snapshots.
template <typename Queue>
Status Stager::or_fail(const Queue& queue) {
  Status queued;
  try {
    queued = queue();
  } catch (const std::bad_alloc&) {
    queued = Error{ErrorCode::kResourceExhausted, kOutOfMemory};
  }
  if (!queued.ok()) failed_ = queued.error();
  return queued;
}

Status Stager::queue_group(Staging& staging, const StageGroup& next) {
  return or_fail([&]() -> Status {
    CKPT_TRY(gather_group(staging, next));
    return drain_group(staging);
  });
}

// Queues the group's kernels. All chunks before it have been given to the drain queue.
Status Stager::gather_group(Staging& staging, const StageGroup& next) {
  const size_t first = staging.queued();
  const size_t end = first + next.chunks;
  staging.plan.list(first, end, lists_);
  CKPT_ASSIGN(const Launch launch, plan_launch(staging));
  CKPT_ASSIGN(kernels::CudaEvent gathered, events_.take());
  const uint32_t* const crc = launch.part.crc;
  Group& group =
      staging.groups.emplace_back(Group{.chunks_end = end,
                                        .crcs = {.first_place = staging.plan.first_place(first),
                                                 .gathered = crc,
                                                 .direct = crc + lists_.ranges.size()},
                                        .gathered = std::move(gathered)});

  kernels::copy(*gather_, launch.part.tables, launch.part.host_tables,
                launch.checksums_at + launch.checksums.table_bytes);
  take_checksums(launch);
  if (next.slots > 0) {
    std::byte* const slot = buffer_.data() + drains_->next_slot() * chunk_bytes_;
    CKPT_TRY(drains_->hold_for_slots(next.slots, gather_->stream()));
    CKPT_TRY(clear_gaps(staging, first, end, slot));
    kernels::pack(*gather_, launch.pack, launch.part.tables, slot, launch.part.crc);
  }
  return group.gathered.record(gather_->stream());
}

// Plans the tables of the kernels in lists_, one after the other.
Result<Stager::Launch> Stager::plan_launch(Staging& staging) {
  const PackLists& lists = lists_;
  const size_t pack_bytes =
      kernels::pack_table_bytes(lists.pieces.size(), lists.ranges.size(), lists.range_bytes);
  const size_t checksum_bytes = kernels::pack_table_bytes(0, lists.runs.size(), lists.run_bytes);
  Launch launch;
  CKPT_ASSIGN(launch.part, take_part(staging, {.places = lists.ranges.size() + lists.runs.size(),
                                               .table_bytes = pack_bytes + checksum_bytes}));
  if (!lists.ranges.empty()) {
    launch.pack = plan_pack(lists.pieces, lists.ranges, {launch.part.host_tables, pack_bytes});
  }
  launch.checksums_at = base::align_up(launch.pack.table_bytes, kTableAlignment);
  if (!lists.runs.empty()) {
    launch.checksums =
        plan_checksums(lists.runs, {launch.part.host_tables + launch.checksums_at, checksum_bytes});
  }
  return launch;
}

void Stager::take_checksums(const Launch& launch) {
  if (lists_.runs.empty()) return;
  kernels::checksum(*gather_, launch.checksums, launch.part.tables + launch.checksums_at,
                    launch.part.crc + lists_.ranges.size());
}

// Clears from the first slot with gaps to the last, in one call, slots between included.
Status Stager::clear_gaps(const Staging& staging, size_t first, size_t end, std::byte* slots) {
  const std::vector<StageChunk>& chunks = staging.plan.chunks();
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  for (size_t i = first; i < end; ++i) {
    if (chunks[i].has_gaps) {
      if (from == nullptr) from = slots;
      to = slots + chunks[i].bytes;
    }
    slots += chunks[i].in_slot ? chunk_bytes_ : 0;
  }
  if (from == nullptr) return ok_status();
  return kernels::cuda_status(
      cudaMemsetAsync(from, 0, static_cast<size_t>(to - from), gather_->stream()), "clearing");
}

// Queues the copies of all remaining chunks of the last gathered group.
Status Stager::drain_group(Staging& staging) {
  while (copied(staging) < staging.queued()) CKPT_TRY(drain_chunk(staging));
  return ok_status();
}

// Copies out of a slot wait for the group's gather. Direct copies do not: they use the link while
// their CRCs are computed. But no chunk counts as drained before its CRCs are computed.
Status Stager::drain_chunk(Staging& staging) {
  const size_t number = copied(staging);
  const StageChunk& chunk = staging.plan.chunks()[number];
  Group& group = staging.groups.back();
  const auto wait = [&]() -> Status {
    return std::exchange(group.awaited, true) ? ok_status() : group.gathered.hold(drain_->stream());
  };
  // A group's slots follow each other, in the order of its chunks.
  const std::byte* const slot = buffer_.data() + drains_->next_slot() * chunk_bytes_;
  for (const StageCopy& copy : staging.plan.copies(number)) {
    if (copy.from == nullptr) CKPT_TRY(wait());
    const std::byte* const from = copy.from != nullptr ? copy.from : slot + copy.at;
    CKPT_TRY(kernels::cuda_status(cudaMemcpyAsync(chunk.to + copy.at, from, copy.bytes,
                                                  cudaMemcpyDeviceToHost, drain_->stream()),
                                  "draining to the arena"));
  }
  CKPT_TRY(wait());
  return drains_->add(drain_->stream(), chunk.in_slot);
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
  // All spare memory is too small. It is kept, since CUDA waits for the whole device before it
  // frees. The next one is at least twice as large, so there are never many.
  const size_t factor = spare_.empty() ? 1 : 2;
  return StagingMemory::make(
      {.places = factor * size.places, .table_bytes = factor * size.table_bytes});
}

}  // namespace ckpt::lib
