#include "ckptd/ingest/ingest.h"

#include <algorithm>
#include <deque>

#include "ckptd/ingest/open_snapshot.h"
#include "ckptd/limits.h"
#include "formats/base/printable.h"

namespace ckptd {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SnapshotKey;

struct Ingest::Impl {
  std::map<SnapshotKey, OpenSnapshot> snapshots;
  std::map<SnapshotKey, Error> failed;
  std::deque<SnapshotKey> failed_order;  // oldest first

  // Removes the snapshot and remembers the reason. `error` already names the snapshot.
  FailAction fail(const SnapshotKey& key, Error error) {
    // The message may name every rank of a large group; it is kept, logged, and sent to all ranks.
    error.message = ckpt::base::shortened(std::move(error.message), limits::kMessageBytesMax);
    snapshots.erase(key);
    if (failed.emplace(key, error).second) failed_order.push_back(key);
    while (failed_order.size() > limits::kFailedSnapshotsRemembered) {
      failed.erase(failed_order.front());
      failed_order.pop_front();
    }
    return FailAction{.snapshot = key, .error = std::move(error)};
  }

  // Adds the actions that follow from the event.
  void advance(const SnapshotKey& key, OpenSnapshot& snapshot, Actions& actions) {
    if (snapshot.staged() && !snapshot.staged_announced) {
      snapshot.staged_announced = true;
      actions.emplace_back(StagedAction{key});
    }
    if (snapshot.ready_to_commit() && !snapshot.committing) {
      snapshot.committing = true;
      actions.emplace_back(snapshot.commit_action());
    }
  }

  Error unknown(const SnapshotKey& key) const {
    if (const auto failure = failed.find(key); failure != failed.end()) return failure->second;
    return make_error(ErrorCode::kFailedPrecondition, "step {} attempt {}: no such open snapshot",
                      key.step, key.attempt);
  }

  size_t open_of_run(ckpt::RunId run) const {
    return static_cast<size_t>(
        std::count_if(snapshots.begin(), snapshots.end(),
                      [run](const auto& entry) { return entry.first.run == run; }));
  }
};

Ingest::Ingest() : impl_(std::make_unique<Impl>()) {}
Ingest::~Ingest() = default;

Ingest::Outcome Ingest::begin(const Begin& begin,
                              const std::shared_ptr<const std::vector<ckpt::UnitSpec>>& units) {
  const SnapshotKey& key = begin.snapshot;
  if (const auto failure = impl_->failed.find(key); failure != impl_->failed.end()) {
    return {.status = failure->second, .actions = {}};
  }
  auto found = impl_->snapshots.find(key);
  if (found == impl_->snapshots.end()) {
    if (impl_->open_of_run(key.run) >= limits::kSnapshotsOpenPerRunMax) {
      // Remembered as failed: a member that begins after there is room must not wait in vain.
      const Error error = name_snapshot(
          begin.run_name, key.step,
          make_error(ErrorCode::kResourceExhausted, "{} snapshots of the run are open, the most",
                     limits::kSnapshotsOpenPerRunMax));
      return {.status = error, .actions = {impl_->fail(key, error)}};
    }
    found = impl_->snapshots.try_emplace(key, begin, units).first;
  }
  OpenSnapshot& snapshot = found->second;
  Outcome outcome;
  if (const Status status = snapshot.begin(begin, *units); !status) {
    const Error error = snapshot.named(status.error());
    outcome.status = error;
    if (error.code != ErrorCode::kAlreadyExists) outcome.actions = {impl_->fail(key, error)};
    return outcome;
  }
  impl_->advance(key, snapshot, outcome.actions);
  return outcome;
}

// Unlike abort(), even if the snapshot is marked as committing: its commit has not started.
Ingest::Actions Ingest::cancel_begin(const SnapshotKey& key, const Error& error) {
  const auto found = impl_->snapshots.find(key);
  CKPT_ASSERT_MSG(found != impl_->snapshots.end(), "only a begin that succeeded is cancelled");
  return {impl_->fail(key, found->second.named(error))};
}

Ingest::Outcome Ingest::sealed(const SnapshotKey& key, ckpt::Rank rank,
                               const std::vector<ckpt::ExtentFragment>& fragments) {
  const auto found = impl_->snapshots.find(key);
  if (found == impl_->snapshots.end()) return {.status = impl_->unknown(key), .actions = {}};
  if (found->second.committing) {
    const Error error = make_error(ErrorCode::kFailedPrecondition,
                                   "rank {} sealed a slab, but all parts are sealed already", rank);
    return {.status = found->second.named(error), .actions = {}};
  }
  Outcome outcome;
  const Result<bool> memory_only = found->second.sealed(rank, fragments);
  if (!memory_only.ok()) {
    const Error error = found->second.named(memory_only.error());
    outcome.status = error;
    outcome.actions = {impl_->fail(key, error)};
    return outcome;
  }
  outcome.memory_only = *memory_only;
  impl_->advance(key, found->second, outcome.actions);
  return outcome;
}

Ingest::Actions Ingest::written(const SnapshotKey& key, const Status& status) {
  const auto found = impl_->snapshots.find(key);
  if (found == impl_->snapshots.end()) return {};
  if (!status) return {impl_->fail(key, found->second.named(status.error()))};
  Actions actions;
  found->second.written();
  impl_->advance(key, found->second, actions);
  return actions;
}

Ingest::Actions Ingest::committed(const SnapshotKey& key, const Status& status) {
  const auto found = impl_->snapshots.find(key);
  CKPT_ASSERT_MSG(found != impl_->snapshots.end() && found->second.committing,
                  "only a snapshot that asked for its commit is committed");
  if (!status) return {impl_->fail(key, found->second.named(status.error()))};
  impl_->snapshots.erase(found);
  return {};
}

Ingest::Actions Ingest::abort(const SnapshotKey& key, const Error& error) {
  const auto found = impl_->snapshots.find(key);
  if (found == impl_->snapshots.end() || found->second.committing) return {};
  return {impl_->fail(key, found->second.named(error))};
}

Ingest::Actions Ingest::refuse(const SnapshotKey& key, const Error& error) {
  const auto found = impl_->snapshots.find(key);
  const bool committing = found != impl_->snapshots.end() && found->second.committing;
  if (committing || impl_->failed.contains(key)) return {};
  return {impl_->fail(key, error)};
}

Ingest::Actions Ingest::member_gone(ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank,
                                    const std::string& how) {
  Actions actions;
  for (const SnapshotKey& key : open(run)) {
    const OpenSnapshot& snapshot = impl_->snapshots.at(key);
    if (key.epoch != epoch || snapshot.sealed_everything(rank)) continue;
    const Error error =
        make_error(ErrorCode::kAborted, "rank {} had not sealed all of its part: {}", rank, how);
    actions.emplace_back(impl_->fail(key, snapshot.named(error)));
  }
  return actions;
}

Ingest::Actions Ingest::tick(Time now) {
  std::vector<SnapshotKey> late;
  for (const auto& [key, snapshot] : impl_->snapshots) {
    if (!snapshot.committing && snapshot.past_deadline(now)) late.push_back(key);
  }
  Actions actions;
  for (const SnapshotKey& key : late) {
    const OpenSnapshot& snapshot = impl_->snapshots.at(key);
    const Error error = make_error(ErrorCode::kDeadlineExceeded, "its deadline has passed: {}",
                                   snapshot.waiting_for());
    actions.emplace_back(impl_->fail(key, snapshot.named(error)));
  }
  return actions;
}

bool Ingest::is_open(const SnapshotKey& key) const { return impl_->snapshots.contains(key); }

bool Ingest::is_staged(const SnapshotKey& key) const {
  const auto found = impl_->snapshots.find(key);
  return found != impl_->snapshots.end() && found->second.staged();
}

std::shared_ptr<const std::vector<ckpt::UnitSpec>> Ingest::units(const SnapshotKey& key) const {
  return impl_->snapshots.at(key).units();
}

std::vector<SnapshotKey> Ingest::open(ckpt::RunId run) const {
  std::vector<SnapshotKey> keys;
  for (const auto& [key, snapshot] : impl_->snapshots) {
    if (key.run == run) keys.push_back(key);
  }
  return keys;
}

size_t Ingest::open_count() const { return impl_->snapshots.size(); }

std::optional<Error> Ingest::failure(const SnapshotKey& key) const {
  const auto found = impl_->failed.find(key);
  if (found == impl_->failed.end()) return std::nullopt;
  return found->second;
}

}  // namespace ckptd
