#include "client/src/cuda/stager.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

namespace ckpt::lib {

namespace {
// A chunk takes dozens of these to cross to the host.
constexpr std::chrono::microseconds kAskOfChunk{5};

// Gives a place back that did not come into a plan, because there was no memory for it.
class LentPlace {
 public:
  LentPlace(ckpt_snapshot* snapshot, uint64_t id) : snapshot_(snapshot), id_(id) {}
  LentPlace(const LentPlace&) = delete;
  LentPlace& operator=(const LentPlace&) = delete;
  ~LentPlace() {
    if (snapshot_ != nullptr) (void)ckpt_snapshot_filled(snapshot_, id_, 0);
  }
  void is_planned() { snapshot_ = nullptr; }

 private:
  ckpt_snapshot* snapshot_;
  const uint64_t id_;
};

kernels::PlannedPack plan_chunk(const StageChunk& chunk, std::vector<std::byte>& tables) {
  std::vector<kernels::PackPiece> pieces;
  std::vector<kernels::PackRange> ranges;
  ranges.reserve(chunk.places.size());
  for (const StagedPlace& place : chunk.places) {
    uint64_t at = chunk.offset_of(place);
    ranges.push_back({at, place.to.size()});
    for (const DeviceBytes& source : place.sources) {
      pieces.push_back({source.from, at, source.bytes});
      at += source.bytes;
    }
  }
  return kernels::plan_pack(pieces, ranges, tables);
}

}  // namespace

Result<std::unique_ptr<Stager>> Stager::open(ckpt_session* session, PinnedArena& arena,
                                             const Options& options) {
  if (options.chunk_bytes < 2 * kBlockBytes || options.chunk_bytes % kBlockBytes != 0 ||
      options.gather_bytes / options.chunk_bytes < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a gather buffer of {} bytes in chunks of {}: at least two chunks of whole"
                      " {} byte blocks are needed",
                      options.gather_bytes, options.chunk_bytes, kBlockBytes);
  }
  std::unique_ptr<Stager> stager(new Stager(session, arena, options));
  CKPT_TRY(stager->prepare());
  return stager;
}

Status Stager::prepare() {
  const kernels::CudaQueueOptions queue{.device = options_.device,
                                        .priority = kernels::CudaPriority::kLow,
                                        .timeout_ms = options_.timeout_ms};
  CKPT_ASSIGN(gather_, kernels::make_cuda_queue(queue));
  CKPT_ASSIGN(drain_, kernels::make_cuda_queue(queue));
  CKPT_TRY(arena_.pin());
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
  // Ends what is open, and waits for the device: until then nothing of the members' may go.
  if (gather_ != nullptr && drain_ != nullptr && !staging_.empty()) {
    (void)fail_all(make_error(ErrorCode::kAborted, "staging was closed"));
  }
  gather_.reset();
  drain_.reset();
}

// Waits until one more chunk of the oldest snapshot has arrived, and hands over what has. CUDA
// waits for an event without a bound only, so it is asked again and again.
Status Stager::await_chunk(const Deadline& deadline) {
  const Staging& oldest = staging_.front();
  const kernels::CudaEvent& drained = oldest.memory->drained[oldest.arrived];
  for (;;) {
    CKPT_ASSIGN(const bool here, drained.happened());
    if (here) return take_all();
    if (deadline.expired()) {
      return make_error(ErrorCode::kDeadlineExceeded,
                        "CUDA device {}: chunk {} of {} of a snapshot has not reached the arena",
                        options_.device, oldest.arrived + 1, oldest.plan.chunks().size());
    }
    std::this_thread::sleep_for(kAskOfChunk);
  }
}

// A slab that is wanted may be one that only this stager can give back.
Status Stager::reserve_place(ckpt_snapshot* snapshot, UnitId unit, uint64_t offset, uint64_t length,
                             ckpt_place* place) {
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  for (;;) {
    const uint32_t timeout_ms = staging_.empty() ? 0 : 1;  // 0: the snapshot's own
    const ckpt_status status =
        ckpt_snapshot_reserve(snapshot, unit, offset, length, timeout_ms, place);
    if (status != CKPT_E_RESOURCE_EXHAUSTED || staging_.empty())
      return session_status(session_, status);
    CKPT_TRY(await_chunk(deadline));
  }
}

Status Stager::reserve(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
                       StagePlan& plan) {
  for (size_t begin = 0; begin < pieces.size();) {
    // Pieces that continue one another are one run: cut where places end, not where tensors do.
    const ckpt_cuda_piece& first = pieces[begin];
    uint64_t left = 0;
    size_t end = begin;
    while (end < pieces.size() && pieces[end].unit == first.unit &&
           pieces[end].offset == first.offset + left) {
      left += pieces[end++].length;
    }
    size_t source = begin;
    uint64_t used = 0;  // of that source
    for (uint64_t offset = first.offset; left > 0;) {
      ckpt_place place{};
      CKPT_TRY(reserve_place(snapshot, first.unit, offset, std::min(left, plan.room()), &place));
      LentPlace lent(snapshot, place.id);
      StagedPlace staged{.unit = first.unit,
                         .sources = {},
                         .to = {static_cast<std::byte*>(place.data), place.length},
                         .id = place.id};
      for (uint64_t wanted = place.length; wanted > 0;) {
        const uint64_t now = std::min(wanted, pieces[source].length - used);
        const auto* from = static_cast<const std::byte*>(pieces[source].data) + used;
        if (now > 0) staged.sources.push_back({from, now});
        wanted -= now;
        used += now;
        if (used == pieces[source].length) {
          ++source;
          used = 0;
        }
      }
      plan.add(staged);
      lent.is_planned();
      offset += place.length;
      left -= place.length;
    }
    begin = end;
  }
  return ok_status();
}

// Of a snapshot that has failed, or will.
void Stager::give_back(ckpt_snapshot* snapshot, const StagePlan& plan, size_t first_chunk) {
  for (size_t i = first_chunk; i < plan.chunks().size(); ++i) {
    for (const StagedPlace& place : plan.chunks()[i].places) {
      (void)ckpt_snapshot_filled(snapshot, place.id, 0);
    }
  }
}

Status Stager::stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
                     cudaStream_t stream) {
  Staging staging{.snapshot = snapshot, .plan = StagePlan(options_.chunk_bytes)};
  Status staged;
  try {
    staged = try_stage(staging, pieces, stream);
  } catch (const std::bad_alloc&) {
    // So short a sentence needs no memory.
    staged = Error{ErrorCode::kResourceExhausted, "out of memory"};
  }
  if (!staged.ok()) {
    (void)ckpt_snapshot_abort(snapshot, staged.error().message.c_str());
    give_back(snapshot, staging.plan, 0);
  }
  return staged;
}

// Takes `staging` over once something is queued for it.
Status Stager::try_stage(Staging& staging, std::span<const ckpt_cuda_piece> pieces,
                         cudaStream_t stream) {
  for (const ckpt_cuda_piece& piece : pieces) {
    if (piece.length == 0 || reachable_.contains({piece.data, piece.length})) continue;
    CKPT_TRY(check_reachable(options_.device, piece.unit, piece.offset, piece.data, piece.length));
    reachable_.emplace(piece.data, piece.length);
  }
  CKPT_TRY(take_news());  // slabs that have arrived are slabs that become free
  CKPT_TRY(arena_.pin());
  CKPT_TRY(reserve(staging.snapshot, pieces, staging.plan));
  const std::vector<StageChunk>& chunks = staging.plan.chunks();
  StagingSize size{.chunks = chunks.size()};
  std::vector<std::byte> tables;
  staging.packs.reserve(chunks.size());
  for (const StageChunk& chunk : chunks) {
    size.places += chunk.places.size();
    staging.packs.push_back(plan_chunk(chunk, tables));
  }
  size.table_bytes = tables.size();
  CKPT_ASSIGN(staging.memory, take_memory(size));
  staging_.push_back(std::move(staging));
  const Status queued = queue_chunks(staging_.back(), tables, stream);
  return queued.ok() ? queued : fail_all(queued.error());
}

// The device, or what it was asked to do, has failed: no bytes that are on their way can be
// trusted.
Status Stager::fail_all(const Error& error) {
  bool at_rest = true;
  for (kernels::CudaQueue* queue : {gather_.get(), drain_.get()}) {
    at_rest = come_to_rest(*queue, options_.timeout_ms).ok() && at_rest;
  }
  for (Staging& staging : staging_) {
    (void)ckpt_snapshot_abort(staging.snapshot, error.message.c_str());
    if (at_rest) {
      give_back(staging.snapshot, staging.plan, staging.arrived);
    } else {
      stranded_.push_back(std::move(staging.memory));
    }
  }
  staging_.clear();
  return error;
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
  return StagingMemory::make({.chunks = factor * size.chunks,
                              .places = factor * size.places,
                              .table_bytes = factor * size.table_bytes});
}

Status Stager::queue_chunks(Staging& staging, const std::vector<std::byte>& tables,
                            cudaStream_t stream) {
  gather_->upload(staging.memory->tables.data(), tables.data(), tables.size());
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
    CKPT_TRY(
        kernels::cuda_status(cudaMemsetAsync(slot.memory, 0, chunk.bytes, gather), "clearing"));
  }
  kernels::pack(*gather_, staging.packs[index], memory.tables.data(), slot.memory,
                memory.crc.data() + first_place);
  CKPT_TRY(memory.gathered[index].record(gather));

  CKPT_TRY(memory.gathered[index].hold(drain));
  CKPT_TRY(kernels::cuda_status(
      cudaMemcpyAsync(chunk.to, slot.memory, chunk.bytes, cudaMemcpyDeviceToHost, drain),
      "draining to the arena"));
  CKPT_TRY(slot.free.record(drain));
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
                                 staging.memory->crc.data()[staging.places++]);
    }
  }
  const ckpt_status ended = ckpt_snapshot_end(staging.snapshot);
  if (ended == CKPT_OK || ended == CKPT_E_ABORTED) return true;  // or it has failed by itself
  const Status wrong = session_status(session_, ended);          // a piece was forgotten
  (void)ckpt_snapshot_abort(staging.snapshot, wrong.error().message.c_str());
  if (!unsaid_) unsaid_ = wrong.error();
  return true;
}

Status Stager::take_all() {
  while (!staging_.empty()) {
    CKPT_ASSIGN(const bool complete, take_arrived(staging_.front()));
    if (!complete) break;  // the drain queue is in order
    spare_.push_back(std::move(staging_.front().memory));
    staging_.pop_front();
  }
  return ok_status();
}

// Of the device; and hands over what has arrived.
Status Stager::take_news() {
  // A launch that failed has left wrong bytes behind; what failed later the events say.
  for (kernels::CudaQueue* queue : {gather_.get(), drain_.get()}) {
    if (const auto& failure = queue->failed()) {
      return fail_all(make_error(ErrorCode::kIo, "CUDA device {}: {}", options_.device, *failure));
    }
  }
  const Status taken = take_all();
  return taken.ok() ? taken : fail_all(taken.error());
}

Status Stager::poll() {
  CKPT_TRY(take_news());
  if (!unsaid_) return ok_status();
  return *std::exchange(unsaid_, std::nullopt);
}

Status Stager::drain(uint32_t timeout_ms) {
  CKPT_TRY(poll());
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (!staging_.empty()) {
    Status arrived = await_chunk(deadline);
    if (arrived.ok()) continue;
    if (arrived.error().code == ErrorCode::kDeadlineExceeded) return arrived;
    return fail_all(arrived.error());
  }
  return poll();
}

}  // namespace ckpt::lib
