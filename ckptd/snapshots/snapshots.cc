#include "ckptd/snapshots/snapshots.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "ckptd/observe/log_event.h"
#include "ckptd/safeguards.h"
#include "ckptd/snapshots/commit_record.h"
#include "formats/wire/snapshot_timings.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SessionId;
using ckpt::SnapshotKey;

namespace {

// Refusing a snapshot because of `stale` would make the omitted units even older. These alarms are
// judged last, so they never displace others from the list.
bool calls_for_refusal(const ckpt::AlarmList& list) {
  return std::any_of(list.alarms.begin(), list.alarms.end(),
                     [](const ckpt::Alarm& alarm) { return alarm.kind != fb::AlarmKind::Stale; });
}

}  // namespace

Snapshots::Snapshots(Needs needs)
    : needs_(std::move(needs)),
      newest_(needs_.history.catalog()),
      core_{.needs = needs_,
            .ingest = ingest_,
            .open = open_,
            .counters = counters_,
            .execute = [this](const Ingest::Actions& actions) { execute(actions); }},
      checks_(needs_, ingest_),
      leases_(needs_, open_, counters_),
      dedup_(needs_, newest_, counters_),
      deltas_(needs_, newest_),
      alarms_(needs_, newest_, registrations_, counters_),
      seals_(core_, checks_, newest_, dedup_, deltas_),
      begins_(core_, checks_, registrations_, leases_) {}

void Snapshots::tick(Time now) {
  dedup_.tick(now);
  deltas_.tick(now);
}

void Snapshots::disconnected(SessionId session) {
  for (auto& [key, open] : open_) open.shares.erase(session);
  begins_.disconnected(session);
  leases_.forget(session);
}

void Snapshots::abort_unstaged(ckpt::RunId run, const Error& error) {
  for (const SnapshotKey& key : ingest_.open(run)) {
    if (ingest_.is_staged(key)) continue;
    execute(ingest_.abort(key, error));
  }
}

bool Snapshots::any_staged() const {
  return std::any_of(open_.begin(), open_.end(),
                     [this](const auto& open) { return ingest_.is_staged(open.first); });
}

bool Snapshots::being_written(ckpt::SegmentId segment) const {
  if (needs_.persist.writes_to(segment)) return true;
  return std::any_of(open_.begin(), open_.end(), [&](const auto& open) {
    const auto& extents = open.second.extents;
    return std::any_of(extents.begin(), extents.end(),
                       [&](const WrittenExtent& extent) { return extent.segment == segment; });
  });
}

std::vector<HeldVersion> Snapshots::versions_held(ckpt::RunId run) const {
  std::vector<HeldVersion> held;
  if (left_out(Safeguard::kHeldVersions)) return held;
  for (const auto& [key, open] : open_) {
    if (key.run != run) continue;
    for (const auto& [commit, unit] : open.shared.held()) held.push_back({commit, unit});
  }
  return held;
}

std::map<std::string, RunProgress::Waiting> Snapshots::waiting() const {
  std::map<std::string, RunProgress::Waiting> waiting;
  for (const auto& [key, open] : open_) {
    if (!ingest_.is_staged(key)) continue;
    RunProgress::Waiting& of_run = waiting[open.run_name];
    const auto waited_ns = static_cast<uint64_t>((needs_.turn.now() - open.staged_at).count());
    if (of_run.count++ == 0 || waited_ns > of_run.longest_ns) {
      of_run.first_step = key.step;
      of_run.longest_ns = waited_ns;
    }
  }
  return waiting;
}

void Snapshots::execute(const Ingest::Actions& actions) {
  for (const Ingest::Action& action : actions) {
    if (const auto* staged = std::get_if<Ingest::StagedAction>(&action)) {
      OpenSnapshotState& open = open_.at(staged->snapshot);
      open.staged_at = needs_.turn.now();
      open.timer.staged(needs_.options.stopwatch());
      announce(staged->snapshot, fb::SnapshotLevel::Staged, open.bytes, nullptr);
    } else if (const auto* ready = std::get_if<Ingest::CommitAction>(&action)) {
      commit(*ready);
    } else if (const auto* failed = std::get_if<Ingest::FailAction>(&action)) {
      fail(*failed);
    }
  }
}

void Snapshots::commit(const Ingest::CommitAction& action) {
  OpenSnapshotState& open = open_.at(action.snapshot);
  open.timer.written(needs_.options.stopwatch());
  open.shared.list_extents(open.extents);
  const ckpt::AlarmList alarms = alarms_.raise(action, open_);
  if (calls_for_refusal(alarms) && open.alarm_policy == fb::AlarmPolicy::Refuse) {
    return refuse_commit(action.snapshot, alarms);
  }
  const auto record =
      std::make_shared<fb::RecordT>(make_record(commit_record(action, alarms, open)));
  needs_.persist.commit(
      action.snapshot,
      [this, key = action.snapshot, record] {
        open_.at(key).timer.synced(needs_.options.stopwatch());
        // The syncs may have taken long: a commit is not older than its data on disk.
        record->body.AsCommitted()->time_ns = needs_.turn.wall_clock_ns();
        return *record;
      },
      [this, key = action.snapshot, record](const Result<uint64_t>& result) {
        committed(key, *record, result);
      });
}

// The snapshot is not committed: its extents become dead space, and the last good commit stays.
void Snapshots::refuse_commit(const SnapshotKey& key, const ckpt::AlarmList& alarms) {
  fb::SnapshotRefusedT refused = refusal_record(key, alarms);
  refused.time_ns = needs_.turn.wall_clock_ns();
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(refused)));
  const std::string& run_name = open_.at(key).run_name;
  needs_.history.record(std::move(records), [run_name, step = key.step](const Status& status) {
    if (status.ok()) return;
    spdlog::error("run {} step {}: that it was refused is not in the history: {}", run_name, step,
                  status.error().message);
  });
  execute(ingest_.committed(
      key, make_error(ErrorCode::kFailedPrecondition, "refused: {}", open_.at(key).alarms)));
}

namespace {

void log_durable(const SnapshotKey& key, const OpenSnapshotState& open, Time lag) {
  const ckpt::SnapshotTimings& timings = open.timer.timings();
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / 1e9; };
  const auto last = open.late_rank.last();
  log_event(spdlog::level::info, "snapshot_durable",
            {{"run", open.run_name},
             {"lineage", key.lineage},
             {"epoch", key.epoch},
             {"step", key.step},
             {"bytes", open.bytes},
             {"extents", open.extents.size()},
             {"seconds", std::chrono::duration<double>(lag).count()},
             {"last_rank", last ? LogValue(*last) : LogValue()},
             {"late", std::chrono::duration<double>(open.late_rank.late()).count()},
             {"plan", seconds(timings.plan_ns)},
             {"begin", seconds(timings.begin_ns)},
             {"slab_wait", seconds(timings.slab_wait_ns)},
             {"copy", seconds(timings.copy_ns)},
             {"seal", seconds(timings.seal_ns)},
             {"write", seconds(timings.write_ns)},
             {"sync", seconds(timings.sync_ns)},
             {"journal", seconds(timings.journal_ns)}},
            "run {} step {}: durable, {} bytes in {} extents", open.run_name, key.step, open.bytes,
            open.extents.size());
}

}  // namespace

void Snapshots::committed(const SnapshotKey& key, const fb::RecordT& record,
                          const Result<uint64_t>& result) {
  if (!result.ok()) return execute(ingest_.committed(key, result.error()));
  open_.at(key).timer.recorded(needs_.options.stopwatch());
  needs_.history.apply(*result, record);
  execute(ingest_.committed(key, {}));
  const OpenSnapshotState& open = open_.at(key);
  // From the record: even if the catalog is unreadable, the commit is durable.
  const CommitInfo commit = info_of(*record.body.AsCommitted());
  needs_.staging.supersede(key, commit.units);
  needs_.on_durable(open.run_name, commit);
  ++counters_.commits;
  counters_.commit_bytes += open.bytes;
  const Time lag = needs_.turn.now() - open.staged_at;
  counters_.level_lag += lag;
  counters_.parts.add(open.timer.timings());
  counters_.late_ranks += open.late_rank.late();
  log_durable(key, open, lag);
  newest_.add(key, open.facts, open.extents);
  announce(key, fb::SnapshotLevel::Durable, open.bytes, nullptr, open.alarms);
  needs_.on_committed(key, *result);
  forget(key);
}

void Snapshots::fail(const Ingest::FailAction& action) {
  ++counters_.failed;
  needs_.on_failed(action.snapshot, action.error);
  dedup_.abandon(action.snapshot);
  needs_.persist.abandon(action.snapshot);
  needs_.persist.release_reservation(action.snapshot);
  announce(action.snapshot, fb::SnapshotLevel::Failed, 0, &action.error);
  forget(action.snapshot);
}

// Members of a snapshot may be in a later epoch when it becomes durable.
void Snapshots::announce(const SnapshotKey& key, fb::SnapshotLevel level, uint64_t bytes,
                         const Error* error, const std::string& alarms) {
  const std::vector<SessionId> members = needs_.members(key.run, key.epoch);
  std::set<SessionId> recipients(members.begin(), members.end());
  fb::SnapshotTimings timings;
  if (const auto open = open_.find(key); open != open_.end()) {
    for (const auto& [session, share] : open->second.shares) recipients.insert(session);
    if (level >= fb::SnapshotLevel::Durable) {
      timings = ckpt::wire::to_fb(open->second.timer.timings());
    }
  }
  for (const SessionId session : recipients) {
    fb::SnapshotStateT state;
    state.epoch = key.epoch;
    state.step = key.step;
    state.attempt = key.attempt;
    state.level = level;
    state.bytes = bytes;
    state.alarms = alarms;
    state.timings = timings;
    if (error != nullptr) {
      state.code = static_cast<int>(error->code);
      state.reason = error->message;
      state.detail = static_cast<int>(error->detail);
    }
    needs_.replies.send(session, std::move(state));
  }
}

// Frees the members' remaining slabs. The client's slabs can be leased to it again at once: it
// hears of the end before the lease.
void Snapshots::forget(const SnapshotKey& key) {
  const auto found = open_.find(key);
  if (found == open_.end()) return;
  const OpenSnapshotState open = std::move(found->second);
  open_.erase(found);
  needs_.on_ended();
  for (const auto& [id, share] : open.shares) {
    const Session* session = needs_.sessions.find(id);
    if (session == nullptr) continue;
    leases_.forget(id, key);
    for (const uint32_t slab : share.leased) needs_.staging.unlease(*session->arena, slab);
    needs_.on_slabs_freed(*session->arena);
  }
}

}  // namespace ckptd
