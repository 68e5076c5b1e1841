#include "client/src/cuda/stager.h"

#include <algorithm>
#include <span>

#include "kernels/pack.h"

namespace ckpt::lib {

Result<std::unique_ptr<Stager>> Stager::open(ckpt_session* session, const Options& options) {
  if (options.chunk_bytes < 2 * kBlockBytes || options.chunk_bytes % kBlockBytes != 0 ||
      options.gather_bytes / options.chunk_bytes < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a gather buffer of {} bytes in chunks of {}: at least two chunks of whole"
                      " {} byte blocks are needed",
                      options.gather_bytes, options.chunk_bytes, kBlockBytes);
  }
  std::unique_ptr<Stager> stager(new Stager(session, options));
  CKPT_TRY(stager->prepare());
  return stager;
}

Status Stager::prepare() {
  CKPT_ASSIGN(gather_, kernels::make_cuda_queue({.device = options_.device}));
  // Whatever else crosses to the host, an all-to-all above all, goes first.
  CKPT_ASSIGN(drain_, kernels::make_cuda_queue({.device = options_.device, .low_priority = true}));
  CKPT_TRY(pin_arena());
  const size_t slots = options_.gather_bytes / options_.chunk_bytes;
  CKPT_ASSIGN(buffer_, kernels::DeviceArray<std::byte>::make(slots * options_.chunk_bytes));
  for (size_t i = 0; i < slots; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.memory = buffer_.data() + i * options_.chunk_bytes;
    CKPT_TRY(slot.free.make());
  }
  return begun_.make();
}

Stager::~Stager() {
  // The members' ends wait for the device; until then nothing of theirs may go.
  if (gather_ != nullptr) (void)gather_->wait();
  if (drain_ != nullptr) (void)drain_->wait();
}

// The session's arena is another one after a daemon that did not take the old one back. The old
// one stays pinned: copies into it may be under way.
Status Stager::pin_arena() {
  uint64_t bytes = 0;
  auto* arena = static_cast<std::byte*>(ckpt_arena(session_, &bytes));
  if (arena == nullptr) {
    return make_error(ErrorCode::kFailedPrecondition, "the session has no arena");
  }
  if (!pinned_.empty() && pinned_.back().data() == arena) return ok_status();
  CKPT_ASSIGN(PinnedRange range, PinnedRange::pin({arena, bytes}));
  pinned_.push_back(std::move(range));
  return ok_status();
}

Status Stager::session_error(ckpt_status status) const {
  if (status == CKPT_OK) return ok_status();
  return make_error(static_cast<ErrorCode>(status), "{}", ckpt_session_error(session_));
}

Status Stager::reserve(ckpt_snapshot* snapshot, const std::vector<ckpt_cuda_piece>& pieces,
                       StagePlan& plan) {
  for (const ckpt_cuda_piece& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.data);
    for (uint64_t done = 0; done < piece.length;) {
      ckpt_place place{};
      CKPT_TRY(
          session_error(ckpt_snapshot_reserve(snapshot, piece.unit, piece.offset + done,
                                              std::min(piece.length - done, plan.room()), &place)));
      plan.add({.unit = piece.unit,
                .from = from + done,
                .to = {static_cast<std::byte*>(place.data), place.length},
                .id = place.id});
      done += place.length;
    }
  }
  return ok_status();
}

// Before anything was queued: the places are nobody's.
void Stager::give_up(ckpt_snapshot* snapshot, const StagePlan& plan, const std::string& reason) {
  (void)ckpt_snapshot_abort(snapshot, reason.c_str());
  for (const StageChunk& chunk : plan.chunks()) {
    for (const StagedPlace& place : chunk.places) (void)ckpt_snapshot_filled(snapshot, place.id, 0);
  }
}

Status Stager::stage(ckpt_snapshot* snapshot, const std::vector<ckpt_cuda_piece>& pieces,
                     cudaStream_t stream) {
  CKPT_TRY(poll());  // slabs that have arrived are slabs that become free
  CKPT_TRY(pin_arena());
  StagePlan plan(options_.chunk_bytes);
  if (const Status reserved = reserve(snapshot, pieces, plan); !reserved.ok()) {
    give_up(snapshot, plan, reserved.error().message);
    return reserved.error();
  }
  size_t places = 0;
  for (const StageChunk& chunk : plan.chunks()) places += chunk.places.size();
  Status status;
  std::unique_ptr<StagingMemory> memory = take_memory(plan.chunks().size(), places, &status);
  if (!status.ok()) {
    give_up(snapshot, plan, status.error().message);
    return status.error();
  }
  Staging& staging = staging_.emplace_back(
      Staging{.snapshot = snapshot, .plan = std::move(plan), .memory = std::move(memory)});
  const Status queued = queue_chunks(staging, stream);
  if (queued.ok()) return ok_status();
  (void)ckpt_snapshot_abort(snapshot, queued.error().message.c_str());
  staging_.pop_back();
  return queued.error();
}

std::unique_ptr<StagingMemory> Stager::take_memory(size_t chunks, size_t places, Status* status) {
  const auto found = std::find_if(spare_.begin(), spare_.end(),
                                  [&](const auto& memory) { return memory->fits(chunks, places); });
  if (found != spare_.end()) {
    std::unique_ptr<StagingMemory> memory = std::move(*found);
    spare_.erase(found);
    return memory;
  }
  spare_.clear();  // all too small
  Result<std::unique_ptr<StagingMemory>> made = StagingMemory::make(chunks, places);
  if (made.ok()) return std::move(made).value();
  *status = made.error();
  return nullptr;
}

Status Stager::queue_chunks(Staging& staging, cudaStream_t stream) {
  CKPT_TRY(begun_.record(stream));
  CKPT_TRY(begun_.hold(gather_->stream()));
  size_t place = 0;
  for (size_t i = 0; i < staging.plan.chunks().size(); ++i) {
    CKPT_TRY(queue_chunk(staging, i, place));
    place += staging.plan.chunks()[i].places.size();
  }
  return ok_status();
}

Status Stager::queue_chunk(Staging& staging, size_t index, size_t first_place) {
  const StageChunk& chunk = staging.plan.chunks()[index];
  StagingMemory& memory = *staging.memory;
  Slot& slot = slots_[next_slot_++ % slots_.size()];
  const cudaStream_t gather = gather_->stream();
  const cudaStream_t drain = drain_->stream();

  CKPT_TRY(slot.free.hold(gather));
  if (chunk.has_gaps) {
    CKPT_TRY(cuda_check(cudaMemsetAsync(slot.memory, 0, chunk.bytes, gather), "clearing"));
  }
  std::vector<kernels::PackPiece> pieces;
  std::vector<kernels::PackRange> ranges;
  for (const StagedPlace& place : chunk.places) {
    pieces.push_back({place.from, chunk.offset_of(place), place.to.size()});
    ranges.push_back({chunk.offset_of(place), place.to.size()});
  }
  kernels::pack(*gather_, pieces, ranges, slot.memory, memory.crc.data() + first_place);
  CKPT_TRY(memory.gathered[index].record(gather));

  CKPT_TRY(memory.gathered[index].hold(drain));
  CKPT_TRY(
      cuda_check(cudaMemcpyAsync(chunk.to, slot.memory, chunk.bytes, cudaMemcpyDeviceToHost, drain),
                 "draining to the arena"));
  CKPT_TRY(slot.free.record(drain));
  CKPT_TRY(
      cuda_check(cudaMemcpyAsync(memory.host_crc + first_place, memory.crc.data() + first_place,
                                 ranges.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost, drain),
                 "fetching CRCs"));
  return memory.drained[index].record(drain);
}

Status Stager::wait_gathered(uint32_t unit, cudaStream_t stream) {
  for (const Staging& staging : staging_) {
    const auto chunks = static_cast<int64_t>(staging.plan.chunks().size());
    const int64_t last =
        unit == CKPT_CUDA_ALL_UNITS ? chunks - 1 : staging.plan.last_chunk_of(unit);
    // The gather queue is in order: with this chunk all before it are gathered.
    if (last >= 0) CKPT_TRY(staging.memory->gathered[static_cast<size_t>(last)].hold(stream));
  }
  return ok_status();
}

// True when everything of it has arrived.
Result<bool> Stager::take_arrived(Staging& staging) {
  const std::vector<StageChunk>& chunks = staging.plan.chunks();
  for (; staging.arrived < chunks.size(); ++staging.arrived) {
    CKPT_ASSIGN(const bool here, staging.memory->drained[staging.arrived].happened());
    if (!here) return false;
    for (const StagedPlace& place : chunks[staging.arrived].places) {
      // Of a snapshot that has failed the place is taken back all the same.
      (void)ckpt_snapshot_filled(staging.snapshot, place.id,
                                 staging.memory->host_crc[staging.places++]);
    }
  }
  (void)ckpt_snapshot_end(staging.snapshot);  // what is wrong with it its own state tells
  return true;
}

Status Stager::poll() {
  // What the queues have noted: a launch that failed has left wrong bytes behind.
  for (kernels::CudaQueue* queue : {gather_.get(), drain_.get()}) {
    if (const auto failure = queue->failed()) {
      for (const Staging& staging : staging_) {
        (void)ckpt_snapshot_abort(staging.snapshot, failure->c_str());
      }
      staging_.clear();
      return make_error(ErrorCode::kIo, "CUDA device {}: {}", options_.device, *failure);
    }
  }
  while (!staging_.empty()) {
    CKPT_ASSIGN(const bool complete, take_arrived(staging_.front()));
    if (!complete) break;  // the drain queue is in order
    spare_.push_back(std::move(staging_.front().memory));
    staging_.pop_front();
  }
  return ok_status();
}

Status Stager::drain() {
  CKPT_TRY(poll());
  if (staging_.empty()) return ok_status();
  CKPT_TRY(cuda_check(cudaStreamSynchronize(drain_->stream()), "draining"));
  return poll();
}

}  // namespace ckpt::lib
