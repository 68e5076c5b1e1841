#include "client/src/cuda/stager.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/src/out_of_memory.h"
#include "kernels/cuda/backoff.h"

namespace ckpt::lib {

namespace {
// Returns a place to the snapshot unless the plan has taken it.
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

// Upper bound for the packs of these pieces: each piece is one place, plus two cut places at each
// chunk boundary.
StagingSize estimate_size(std::span<const ckpt_cuda_piece> pieces, uint64_t chunk_bytes) {
  uint64_t bytes = 0;
  for (const ckpt_cuda_piece& piece : pieces) bytes += piece.length;
  const size_t count = pieces.size() + 2 * (bytes / chunk_bytes + 1);
  return {.places = count, .table_bytes = kernels::pack_table_bytes(count, count, bytes)};
}

}  // namespace

Stager::~Stager() {
  // Abort open snapshots and wait for the device before any member is destroyed.
  if (gather_ != nullptr && drain_ != nullptr && !staging_.empty()) {
    (void)fail_all(make_error(ErrorCode::kAborted, "staging was closed"));
  }
  // Destroy a hanging queue first: CUDA would wait for it before freeing the other's memory.
  if (drain_ != nullptr && !drain_->wait_at_most(0)) drain_.reset();
  gather_.reset();
  drain_.reset();
}

// Waits until a chunk arrives, and hands it over. Waiting for a CUDA event has no timeout, so this
// polls.
Status Stager::await_chunk(const Deadline& deadline) {
  const uint64_t drained = drains_->drained();
  const size_t open = staging_.size();
  for (kernels::Backoff backoff;; backoff.pause()) {
    CKPT_TRY(hand_over_all());
    if (drains_->drained() != drained || staging_.size() != open) return ok_status();
    if (deadline.expired()) {
      const Staging& oldest = staging_.front();
      return make_error(ErrorCode::kDeadlineExceeded,
                        "CUDA device {}: chunk {} of {} of a snapshot has not reached the arena",
                        options_.device, oldest.arrived + 1, oldest.plan.chunks().size());
    }
  }
}

// Only this stager can return some slabs, perhaps of the same snapshot: the snapshot's own timeout
// starts when the stager has nothing left to return.
Status Stager::reserve_place(Staging& staging, const ckpt_cuda_piece& wanted, ckpt_place* place) {
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  for (;;) {
    const bool has_some = drains_->open() > 0 || staging.queued() < staging.plan.chunks().size();
    const uint32_t timeout_ms = has_some ? 1 : 0;  // 0: the snapshot's own
    const ckpt_status status = ckpt_snapshot_reserve(staging.snapshot, wanted.unit, wanted.offset,
                                                     wanted.length, timeout_ms, place);
    Status reserved = session_status(session_, status);
    const bool may_come = status == CKPT_E_RESOURCE_EXHAUSTED || status == CKPT_E_UNAVAILABLE;
    if (!may_come || !has_some || reserved.error().message == kOutOfMemory) return reserved;
    staging.plan.close();
    CKPT_TRY(queue_ready(staging, {}));
    if (drains_->open() > 0) CKPT_TRY(await_chunk(deadline));
  }
}

// Replaces sources_ by the sources of the next bytes, piece by piece. Adjacent pieces may belong to
// different allocations, and CUDA refuses a copy that leaves its first allocation ("invalid
// argument", seen on an H200).
Status Stager::take_sources(Cursor& cursor, uint64_t bytes) {
  sources_.clear();
  while (bytes > 0) {
    const ckpt_cuda_piece& piece = cursor.pieces[cursor.piece];
    if (cursor.used == 0 && piece.length > 0) {
      CKPT_ASSIGN(const bool on_device, check_reachable(options_.device, piece.unit, piece.offset,
                                                        piece.data, piece.length));
      cursor.on_host = !on_device;
    }
    const uint64_t now = std::min(bytes, piece.length - cursor.used);
    const auto* from = static_cast<const std::byte*>(piece.data) + cursor.used;
    if (now > 0) {
      sources_.push_back({.from = from, .bytes = now, .on_host = cursor.on_host});
    }
    bytes -= now;
    cursor.used += now;
    if (cursor.used == piece.length) {
      ++cursor.piece;
      cursor.used = 0;
    }
  }
  return ok_status();
}

Status Stager::stage_pieces(Staging& staging, std::span<const ckpt_cuda_piece> pieces) {
  Cursor cursor{.pieces = pieces};
  for (size_t begin = 0; begin < pieces.size();) {
    // Adjacent pieces of a unit form one run: cut at places, not at tensors.
    const ckpt_cuda_piece& first = pieces[begin];
    uint64_t left = 0;
    size_t end = begin;
    while (end < pieces.size() && pieces[end].unit == first.unit &&
           pieces[end].offset == first.offset + left) {
      left += pieces[end++].length;
    }
    cursor.piece = begin;
    for (uint64_t offset = first.offset; left > 0;) {
      ckpt_place place{};
      const uint64_t wanted = std::min(left, staging.plan.room());
      CKPT_TRY(reserve_place(staging, {first.unit, offset, nullptr, wanted}, &place));
      LentPlace lent(staging.snapshot, place.id);
      CKPT_TRY(take_sources(cursor, place.length));
      if (arena_.begins_part(place.data)) staging.plan.close();
      staging.plan.add({.unit = first.unit,
                        .to = {static_cast<std::byte*>(place.data), place.length},
                        .id = place.id},
                       sources_);
      lent.is_planned();
      offset += place.length;
      left -= place.length;
      CKPT_TRY(queue_ready(staging, {.chunks = chunks_ahead()}));
    }
    begin = end;
  }
  staging.plan.close();
  return queue_ready(staging, {.chunks = chunks_ahead()});
}

// Returns the places of a snapshot that has failed or will fail.
void Stager::return_places(const Staging& staging, size_t first_chunk) {
  const std::vector<StagedPlace>& places = staging.plan.places();
  for (size_t i = staging.plan.first_place(first_chunk); i < places.size(); ++i) {
    (void)ckpt_snapshot_filled(staging.snapshot, places[i].id, 0);
  }
}

Status Stager::stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
                     cudaStream_t stream) {
  Status staged;
  try {
    staged = poll_or_fail_all();  // arrived chunks free slabs
    if (staged.ok()) staged = queue_more({});
    if (staged.ok()) staged = try_stage(snapshot, pieces, stream);
  } catch (const std::bad_alloc&) {
    staged = Error{ErrorCode::kResourceExhausted, kOutOfMemory};
  }
  if (failed_) staged = fail_all(Error(*failed_));
  if (!staged.ok()) abort_staging(snapshot, staged.error());
  return staged;
}

Status Stager::try_stage(ckpt_snapshot* snapshot, std::span<const ckpt_cuda_piece> pieces,
                         cudaStream_t stream) {
  CKPT_TRY(arena_.pin());
  const DirectRule direct = direct_rule(pieces);
  Staging& staging =
      staging_.emplace_back(Staging{.snapshot = snapshot,
                                    .plan = StagePlan(chunk_bytes_, direct),
                                    .first_drain = drains_->next(),
                                    .estimate = estimate_size(pieces, chunk_bytes_)});
  CKPT_TRY(begun_.record(stream));
  CKPT_TRY(begun_.hold(gather_->stream()));
  if (direct.until > 0) CKPT_TRY(begun_.hold(drain_->stream()));
  CKPT_TRY(stage_pieces(staging, pieces));
  staging.complete = true;
  return ok_status();
}

// Aborts the snapshot being staged, after a failure of its own. Waits for its queued work, since
// the caller may free the handle after this returns.
void Stager::abort_staging(ckpt_snapshot* snapshot, const Error& error) {
  (void)ckpt_snapshot_abort(snapshot, error.message.c_str());
  if (staging_.empty() || staging_.back().complete) return;  // not begun, or all have failed
  Staging& staging = staging_.back();
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  while (staging.arrived < staging.queued()) {
    const Status arrived = await_chunk(deadline);
    if (!arrived.ok()) {
      (void)fail_all(arrived.error());
      return;
    }
  }
  return_places(staging, staging.arrived);
  reuse(staging);
  staging_.pop_back();
}

// Fails all snapshots after a failure of the device or its queue: bytes in flight cannot be
// trusted.
Status Stager::fail_all(const Error& error) {
  failed_.reset();
  bool idle = true;
  for (kernels::CudaQueue* queue : {gather_.get(), drain_.get()}) {
    idle = wait_until_idle(*queue, options_.timeout_ms).ok() && idle;
  }
  for (Staging& staging : staging_) {
    (void)ckpt_snapshot_abort(staging.snapshot, error.message.c_str());
    if (!idle) continue;
    return_places(staging, staging.arrived);
    reuse(staging);
  }
  if (!idle) {
    stranded_.splice(stranded_.end(), staging_);
    return error;
  }
  staging_.clear();
  drains_->forget();
  return error;
}

// Recycles the staging's memory and events, once the device is done with them.
void Stager::reuse(Staging& staging) {
  for (const auto& memory : staging.memory) memory->release_parts();
  spare_.splice(spare_.end(), staging.memory);
  // A recycled event is safe: a device-side wait keeps the point that was recorded at the time.
  for (Group& group : staging.groups) events_.release(std::move(group.gathered));
}

Status Stager::wait_gathered(uint32_t unit, cudaStream_t stream) {
  if (failed_) return fail_all(Error(*failed_));
  for (const Staging& staging : staging_) {
    const StagePlan& plan = staging.plan;
    const bool all = unit == CKPT_CUDA_ALL_UNITS;
    const int64_t last =
        all ? static_cast<int64_t>(plan.chunks().size()) - 1 : plan.last_chunk_of(unit);
    if (last < 0) continue;
    // Drained, so gathered.
    if (staging.first_drain + static_cast<uint64_t>(last) < drains_->drained()) continue;
    if (&staging == &staging_.back()) {
      const Status queued = queue_more({.chunks = static_cast<size_t>(last) + 1});
      if (!queued.ok()) return fail_all(queued.error());
    }
    const int64_t direct = all ? plan.last_direct() : plan.last_direct_of(unit);
    if (direct >= 0) {
      const uint64_t number = staging.first_drain + static_cast<uint64_t>(direct);
      CKPT_TRY(drains_->hold_for(number, stream));
    }
    // A group's drain follows its gather and all earlier ones.
    if (direct == last) continue;
    const auto group = std::partition_point(
        staging.groups.begin(), staging.groups.end(),
        [&](const Group& one) { return one.chunks_end <= static_cast<size_t>(last); });
    CKPT_TRY(group->gathered.hold(stream));
  }
  return ok_status();
}

// Hands over everything that has arrived, of all snapshots.
Status Stager::hand_over_all() {
  if (staging_.empty()) return ok_status();
  if (failed_) return *failed_;
  // A failed launch has left wrong bytes behind; the events report later failures.
  for (kernels::CudaQueue* queue : {gather_.get(), drain_.get()}) {
    if (const auto& failure = queue->failed()) {
      return make_error(ErrorCode::kIo, "CUDA device {}: {}", options_.device, *failure);
    }
  }
  CKPT_TRY(drains_->poll());
  while (!staging_.empty()) {
    Staging& oldest = staging_.front();
    hand_over(oldest);
    if (!oldest.complete || oldest.arrived < oldest.plan.chunks().size()) break;
    end(oldest);
    reuse(oldest);
    staging_.pop_front();
  }
  return ok_status();
}

// Hands over the places that have arrived.
void Stager::hand_over(Staging& staging) {
  const std::vector<StagedPlace>& places = staging.plan.places();
  for (; staging.arrived < staging.queued() &&
         staging.first_drain + staging.arrived < drains_->drained();
       ++staging.arrived) {
    if (staging.groups[staging.arriving].chunks_end == staging.arrived) ++staging.arriving;
    const Group& group = staging.groups[staging.arriving];
    const size_t places_end = staging.plan.chunks()[staging.arrived].places_end;
    for (size_t i = staging.plan.first_place(staging.arrived); i < places_end; ++i) {
      // If the snapshot has failed, the place is returned anyway.
      (void)ckpt_snapshot_filled(staging.snapshot, places[i].id,
                                 staging.plan.crc_of(i, group.crcs));
    }
  }
}

// Ends a snapshot whose chunks have all arrived.
void Stager::end(const Staging& staging) {
  const ckpt_status ended = ckpt_snapshot_end(staging.snapshot);
  if (ended == CKPT_OK || ended == CKPT_E_ABORTED) return;  // ABORTED: the snapshot had failed
  const Status wrong = session_status(session_, ended);     // a bug: a piece is missing
  (void)ckpt_snapshot_abort(staging.snapshot, wrong.error().message.c_str());
  if (!unreported_) unreported_ = wrong.error();
}

// Polls the device and hands over arrived places. Fails all snapshots after an error.
Status Stager::poll_or_fail_all() {
  const Status taken = hand_over_all();
  return taken.ok() ? taken : fail_all(taken.error());
}

Status Stager::poll() {
  CKPT_TRY(poll_or_fail_all());
  const Status queued = queue_more({.only_free = true});
  if (!queued.ok()) return fail_all(queued.error());
  if (!unreported_) return ok_status();
  return *std::exchange(unreported_, std::nullopt);
}

void Stager::advance() {
  if (failed_ || !is_active()) return;
  const Status taken = drains_->poll();
  if (!taken.ok()) failed_ = taken.error();
  if (taken.ok() && has_more()) (void)queue_slice(staging_.back());
}

Status Stager::drain(uint32_t timeout_ms) {
  CKPT_TRY(poll());
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (!staging_.empty()) {
    Status arrived = queue_more({.only_free = true});
    if (arrived.ok()) arrived = await_chunk(deadline);
    if (arrived.ok()) continue;
    if (arrived.error().code == ErrorCode::kDeadlineExceeded) return arrived;
    return fail_all(arrived.error());
  }
  return poll();
}

}  // namespace ckpt::lib
