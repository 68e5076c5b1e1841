#include "trainer/checkpoint/snapshotter.h"

#include <algorithm>
#include <chrono>

#include "trainer/checkpoint/client_status.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

ckpt::SnapshotTimings timings_of(const client::SnapshotInfo& info) {
  const client::SnapshotTimings& from = info.timings;
  return {.plan_ns = from.plan_ns,
          .begin_ns = from.begin_ns,
          .slab_wait_ns = from.slab_wait_ns,
          .copy_ns = from.copy_ns,
          .seal_ns = from.seal_ns,
          .write_ns = from.write_ns,
          .sync_ns = from.sync_ns,
          .journal_ns = from.journal_ns};
}

}  // namespace

Snapshotter::~Snapshotter() {
  if (link_ == nullptr) return;
  (void)link_->drain(kLinkTimeoutMs);
  for (InFlight& snapshot : in_flight_) link_->retire(std::move(snapshot.handle));
}

// Parts that had not reached the arena were not staged, and will be settled as failed.
void Snapshotter::enter_epoch(uint32_t rank, uint64_t epoch) {
  CKPT_ASSERT(!begun_);
  if (link_ != nullptr) (void)link_->drain(kLinkTimeoutMs);
  rank_ = rank;
  epoch_ = epoch;
}

void Snapshotter::before_write(std::span<const uint32_t> units) {
  if (link_ == nullptr) return;
  for (const uint32_t unit : units) link_->wait_gathered(unit);
}

Status Snapshotter::poll() { return link_ == nullptr ? Status() : link_->poll(); }

// Bounds the snapshots in flight. The oldest one stays in the queue, so that it is reported.
Status Snapshotter::limit_in_flight(uint64_t step, const BackPressure& pressure) {
  const auto is_open = [](const InFlight& snapshot) {
    return snapshot.handle.info().level < CKPT_LEVEL_DURABLE;
  };
  const auto open = std::count_if(in_flight_.begin(), in_flight_.end(), is_open);
  waits_.open = static_cast<uint32_t>(open);
  if (static_cast<size_t>(open) < kInFlightMax) return {};
  InFlight& oldest = *std::find_if(in_flight_.begin(), in_flight_.end(), is_open);
  if (pressure.policy == CKPT_SLABS_SKIP) {
    return make_error(ErrorCode::kResourceExhausted,
                      "step {}: the snapshot of step {} is still being written", step, oldest.step);
  }
  CKPT_TRY(drain_link(std::min(kLinkTimeoutMs, pressure.wait_ms_max)));
  Status waited = await_durable(oldest.handle, pressure.wait_ms_max);
  if (waited.ok() || oldest.handle.info().level == CKPT_LEVEL_FAILED) return {};
  if (waited.error().code != ErrorCode::kDeadlineExceeded) return waited;
  return make_error(
      ErrorCode::kDeadlineExceeded,
      "step {}: the snapshot of step {} was not written within another {:g} s: the disk is slow; "
      "checkpoint less often, or save fewer experts",
      step, oldest.step, pressure.wait_ms_max / 1e3);
}

Status Snapshotter::copy(client::Snapshot& snapshot, const std::vector<ckpt_fragment>& fragments,
                         const StateMemory& memory) {
  std::vector<LinkPiece> staged;
  for (const ckpt_fragment& fragment : fragments) {
    if (fragment.rank != rank_) continue;
    for (const MemoryPiece& piece :
         memory.pieces(fragment.unit, fragment.offset, fragment.length)) {
      if (link_ != nullptr) {
        staged.push_back({fragment.unit, piece.offset, piece.bytes, piece.on_host});
        continue;
      }
      CKPT_TRY(to_status(
          snapshot.write(fragment.unit, piece.offset, piece.bytes.data(), piece.bytes.size())));
    }
  }
  return link_ != nullptr ? link_->stage(snapshot, staged) : to_status(snapshot.end());
}

Status Snapshotter::begin(Request request, const BackPressure& pressure) {
  CKPT_ASSERT(!begun_);
  const auto start = Clock::now();
  waits_ = {};
  const Status room = limit_in_flight(request.step, pressure);
  waits_.room_ms = ms_since(start);
  CKPT_TRY(room);
  // Rest of the wait; at least 1, since 0 would mean the library's default.
  const double left_ms = pressure.wait_ms_max - ms_since(start);
  client::SnapshotOptions options;
  options.step = request.step;
  options.attempt = request.attempt;
  options.units = std::move(request.units);
  options.memory_units = std::move(request.memory_units);
  options.fragments = std::move(request.fragments);
  options.out_of_slabs = pressure.policy;
  options.metrics = std::move(request.metrics);
  options.timeout_ms = static_cast<uint32_t>(std::max(left_ms, 1.0));
  options.expert_tokens = std::move(request.expert_tokens);
  options.expert_lost = std::move(request.expert_lost);
  options.staleness_max = request.staleness_max;
  options.plan_ns = request.plan_ns;
  options.no_wait = true;
  const auto asked = Clock::now();
  Result<client::Snapshot> begun = to_result(session_.begin(options));
  waits_.slabs_ms = ms_since(asked);
  CKPT_ASSIGN(client::Snapshot handle, std::move(begun));
  begun_.emplace(Begun{options.step, std::move(options.fragments), std::move(handle)});
  return {};
}

Status Snapshotter::fill(const StateMemory& memory) {
  CKPT_ASSERT(begun_.has_value());
  Begun begun = std::move(*begun_);
  begun_.reset();
  const uint64_t asked_ns = begun.handle.info().wait_ns;
  Status filled = copy(begun.handle, begun.fragments, memory);
  waits_.slabs_ms += static_cast<double>(begun.handle.info().wait_ns - asked_ns) / 1e6;
  if (!filled.ok()) {
    (void)begun.handle.abort(filled.error().message);
    return filled;
  }
  in_flight_.push_back({begun.step, epoch_, std::move(begun.handle)});
  return {};
}

void Snapshotter::drop(const std::string& reason) {
  if (begun_) (void)begun_->handle.abort(reason);
  begun_.reset();
}

// Copies of a failed snapshot may still be in flight from the device.
void Snapshotter::forget(InFlight& snapshot) {
  if (link_ != nullptr) link_->retire(std::move(snapshot.handle));
}

SnapshotOutcome Snapshotter::outcome_of(const InFlight& snapshot) {
  const client::SnapshotInfo info = snapshot.handle.info();
  return {.step = snapshot.step,
          .epoch = snapshot.epoch,
          .durable = info.level == CKPT_LEVEL_DURABLE,
          .reason = info.reason,
          .detail = static_cast<ckpt::ErrorDetail>(info.detail),
          .alarms = info.alarms,
          .bytes = info.bytes,
          .durable_ms = static_cast<double>(info.durable_ns) / 1e6,
          .timings = timings_of(info)};
}

std::vector<SnapshotOutcome> Snapshotter::settled() {
  std::vector<SnapshotOutcome> outcomes;
  std::erase_if(in_flight_, [&](InFlight& snapshot) {
    if (snapshot.handle.info().level < CKPT_LEVEL_DURABLE) return false;
    outcomes.push_back(outcome_of(snapshot));
    forget(snapshot);
    return true;
  });
  return outcomes;
}

void Snapshotter::abandon(uint64_t step, const std::string& reason) {
  for (InFlight& snapshot : in_flight_) {
    if (snapshot.step == step) (void)snapshot.handle.abort(reason);
  }
}

void Snapshotter::await_settled(uint64_t step, uint32_t timeout_ms) {
  (void)drain_link(timeout_ms);
  for (InFlight& snapshot : in_flight_) {
    if (snapshot.step == step) (void)await_durable(snapshot.handle, timeout_ms);
  }
}

Status Snapshotter::await_durable(client::Snapshot& handle, double timeout_ms) const {
  const auto begin = Clock::now();
  for (;;) {
    const double left_ms = timeout_ms - ms_since(begin);
    const auto slice_ms = static_cast<uint32_t>(std::clamp(left_ms, 1.0, kWaitSliceMs));
    Status durable = to_status(handle.wait(CKPT_LEVEL_DURABLE, slice_ms));
    if (durable.ok() || left_ms <= kWaitSliceMs) return durable;
    const ErrorCode code = durable.error().code;
    const bool may_come = code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kUnavailable;
    if (!may_come || (abort_waits_ && abort_waits_())) return durable;
  }
}

// Waits for copies from the device. Copies need slabs, so the wait ends if ckptd stops answering.
Status Snapshotter::drain_link(uint32_t timeout_ms) {
  if (link_ == nullptr) return {};
  const auto begin = Clock::now();
  for (;;) {
    const double left_ms = timeout_ms - ms_since(begin);
    Status drained = link_->drain(static_cast<uint32_t>(std::clamp(left_ms, 1.0, kWaitSliceMs)));
    const bool may_come = !drained.ok() && drained.error().code == ErrorCode::kDeadlineExceeded;
    if (!may_come || left_ms <= kWaitSliceMs) return drained;
    (void)session_.poll(0);
    if (abort_waits_ && abort_waits_()) return drained;
  }
}

Result<SnapshotOutcome> Snapshotter::wait(uint64_t step, uint32_t timeout_ms) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const InFlight& s) { return s.step == step; });
  if (found == in_flight_.end()) {
    return make_error(ErrorCode::kFailedPrecondition, "step {}: no snapshot is in flight", step);
  }
  CKPT_TRY(drain_link(timeout_ms));
  const Status waited = await_durable(found->handle, timeout_ms);
  const SnapshotOutcome outcome = outcome_of(*found);
  if (found->handle.info().level >= CKPT_LEVEL_DURABLE) {
    forget(*found);
    in_flight_.erase(found);
  }
  if (outcome.durable) return outcome;
  return waited.error();
}

bool Snapshotter::in_flight(uint64_t step) const {
  return std::ranges::any_of(in_flight_,
                             [&](const InFlight& snapshot) { return snapshot.step == step; });
}

std::vector<SnapshotOutcome> Snapshotter::drain(uint32_t timeout_ms) {
  const auto begin = Clock::now();
  (void)drain_link(timeout_ms);
  for (InFlight& snapshot : in_flight_) {
    (void)await_durable(snapshot.handle, timeout_ms - ms_since(begin));
  }
  return settled();
}

}  // namespace moetrain
