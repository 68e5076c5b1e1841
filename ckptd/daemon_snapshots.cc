// Seals, writes, commit and failures of snapshots: executes the decisions of Ingest.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "formats/wire/snapshot_timings.h"

namespace ckptd {

namespace {

// Refusing a snapshot because of `stale` would make the omitted units even older. These alarms are
// judged last, so they never displace others from the list.
bool calls_for_refusal(const ckpt::AlarmList& list) {
  return std::any_of(list.alarms.begin(), list.alarms.end(),
                     [](const ckpt::Alarm& alarm) { return alarm.kind != fb::AlarmKind::Stale; });
}

}  // namespace

// Takes ownership of the slab. Only a slab that was leased for this snapshot may be sealed
// into it. In an adopted arena a seal is also a claim: of any slab that no snapshot has
// claimed yet.
Result<StagedSlab> Daemon::Impl::take_over(Session& session, const SnapshotKey& key,
                                           const fb::SealSlabT& message) {
  OpenSnapshotState::Share& share = open_snapshots.at(key).shares[session.id];
  if (!share.leased.contains(message.slab)) {
    if (!session.handing_back) {
      return make_error(ErrorCode::kFailedPrecondition, "slab {} is not leased for this snapshot",
                        message.slab);
    }
    CKPT_TRY(staging->claim_leased(*session.arena, message.slab));
    share.leased.insert(message.slab);
    ++share.held;
  }
  std::vector<ckpt::ExtentFragment> fragments;
  fragments.reserve(message.fragments.size());
  for (const fb::SealedFragment& fragment : message.fragments) {
    fragments.push_back({.unit = fragment.unit(),
                         .codec = 0,
                         .offset = fragment.offset(),
                         .length = fragment.length(),
                         .payload_offset = fragment.payload_offset(),
                         .crc32c = fragment.crc32c()});
  }
  auto staged =
      staging->seal(*session.arena, message.slab, message.payload_bytes, std::move(fragments));
  if (staged.ok()) share.leased.erase(message.slab);
  return staged;
}

void Daemon::Impl::seal_slab(Session& session, const fb::SealSlabT& message) {
  const auto key = member_key(session, message.epoch, message.step, message.attempt);
  if (!key.ok()) return replies.refuse(session.id, message.request, key.error());
  if (!ingest.is_open(*key) || !open_snapshots.contains(*key)) {
    // The end of the snapshot freed its slab; a slab of an adopted arena is freed later.
    const auto failure = ingest.failure(*key);
    return replies.refuse(session.id, message.request,
                          failure ? *failure
                                  : make_error(ErrorCode::kFailedPrecondition,
                                               "run {} step {}: no such open snapshot",
                                               session.run_name, message.step));
  }
  auto staged = take_over(session, *key, message);
  if (!staged.ok()) {
    const Error error =
        make_error(staged.error().code, "rank {}: {}", epochs.groups().member(session.id)->rank,
                   staged.error().message);
    replies.refuse(session.id, message.request, error);
    return carry_out(ingest.abort(*key, error));
  }
  const ckpt::Rank rank = epochs.groups().member(session.id)->rank;
  open_snapshots.at(*key).timer.told(ckpt::wire::from_fb(message.timings));
  const Ingest::Outcome outcome = ingest.sealed(*key, rank, staged->fragments());
  if (!outcome.status.ok()) {
    replies.refuse(session.id, message.request, outcome.status.error());
    return carry_out(outcome.actions);
  }
  keep_or_write(session.id, *key, rank, std::move(staged).value(), outcome.memory_only);
  carry_out(outcome.actions);
}

// Bytes that may already be on disk are compared first.
void Daemon::Impl::keep_or_write(SessionId session, const SnapshotKey& key, ckpt::Rank rank,
                                 StagedSlab slab, bool memory_only) {
  if (memory_only) return keep(key, std::move(slab));
  for (const ckpt::ExtentFragment& fragment : slab.fragments()) {
    open_snapshots.at(key).bytes += fragment.length;
  }
  const std::vector<SameCandidate> candidates = find_same(key, slab);
  forget_newest_if_ended(key);
  if (candidates.empty()) return write(session, key, rank, std::move(slab), {});
  comparer->compare(
      key, std::move(slab), candidates, extents_of(key, candidates),
      [this, session, key, rank, candidates](StagedSlab compared, const std::vector<bool>& same) {
        const auto left_out = share_same(key, compared, candidates, same);
        write(session, key, rank, std::move(compared), left_out);
      });
}

// Bytes are checked in both cases, and their floats scanned.
void Daemon::Impl::keep(const SnapshotKey& key, StagedSlab slab) {
  const auto scan = std::make_shared<NotFiniteScan>(history.catalog().units(key.run).value());
  PayloadObserver observer = observe_floats(key, scan);
  const auto on_checked = [this, key, scan](const Status& checked) {
    if (checked.ok()) open_snapshots.at(key).scans.push_back(scan);
    carry_out(ingest.written(key, checked));
  };
  persist->keep(key, std::move(slab), on_checked, std::move(observer));
}

void Daemon::Impl::write(SessionId session, const SnapshotKey& key, ckpt::Rank rank,
                         StagedSlab slab, const std::vector<bool>& left_out) {
  const UnitSpecList units = history.catalog().units(key.run).value();
  const auto scan = std::make_shared<NotFiniteScan>(units);
  PayloadObserver observer = observe_floats(key, scan);
  OpenSnapshotState& open = open_snapshots.at(key);
  const auto sharer = open.shares.find(session);
  std::shared_ptr<BaseSource> bases = find_bases(key, slab, left_out);
  forget_newest_if_ended(key);
  const bool streams = sharer != open.shares.end() && sharer->second.streams;
  const auto on_written = [this, session, streams, key, scan](Result<WrittenExtent> written) {
    if (!written.ok()) return carry_out(ingest.written(key, written.error()));
    OpenSnapshotState& ours = open_snapshots.at(key);
    const auto share = ours.shares.find(session);
    if (streams && share != ours.shares.end()) --share->second.held;
    if (!written->fragments.empty()) ours.extents.push_back(std::move(written).value());
    ours.scans.push_back(scan);
    carry_out(ingest.written(key, {}));
  };
  persist->write(key, rank, std::move(slab), on_written, std::move(observer),
                 streams ? Persist::Afterwards::kFree : Persist::Afterwards::kHold,
                 open.encode_plan, left_out, std::move(bases));
}

void Daemon::Impl::abort_snapshot(Session& session, const fb::AbortSnapshotT& message) {
  const auto key = member_key(session, message.epoch, message.step, message.attempt);
  if (!key.ok()) return replies.refuse(session.id, message.request, key.error());
  replies.done(session.id, message.request);
  // A begin that still waits has no state except its message.
  const size_t waited = std::erase_if(waiting_begins[key->run], [&](const WaitingBegin& begin) {
    return begin.session == session.id && begin.message.step == message.step &&
           begin.message.attempt == message.attempt;
  });
  const Error error = make_error(ErrorCode::kAborted, "rank {} gave it up: {}",
                                 epochs.groups().member(session.id)->rank, message.reason);
  if (waited > 0) refuse_snapshot(*key, session.run_name, error);
  carry_out(ingest.abort(*key, error));
}

void Daemon::Impl::carry_out(const Ingest::Actions& actions) {
  for (const Ingest::Action& action : actions) {
    if (const auto* staged = std::get_if<Ingest::StagedAction>(&action)) {
      open_snapshots.at(staged->snapshot).staged_at = turn.now();
      open_snapshots.at(staged->snapshot).timer.staged(options.stopwatch());
      announce(staged->snapshot, fb::SnapshotLevel::Staged,
               open_snapshots.at(staged->snapshot).bytes, nullptr);
    } else if (const auto* commit = std::get_if<Ingest::CommitAction>(&action)) {
      carry_out(*commit);
    } else if (const auto* fail = std::get_if<Ingest::FailAction>(&action)) {
      carry_out(*fail);
    }
  }
}

void Daemon::Impl::carry_out(const Ingest::CommitAction& action) {
  OpenSnapshotState& open = open_snapshots.at(action.snapshot);
  open.timer.written(options.stopwatch());
  list_shared_extents(open);
  const ckpt::AlarmList alarms = raise_alarms(action);
  if (calls_for_refusal(alarms) && open.alarm_policy == fb::AlarmPolicy::Refuse) {
    return refuse_commit(action.snapshot, alarms);
  }
  // The record does not depend on the order in which writes happened to finish.
  std::sort(open.extents.begin(), open.extents.end(),
            [](const WrittenExtent& a, const WrittenExtent& b) {
              return std::tie(a.rank, a.segment, a.offset) < std::tie(b.rank, b.segment, b.offset);
            });
  fb::CommittedT commit;
  ckpt::set_key(commit, action.snapshot);
  commit.plan = ckpt::wire::to_fb(action.plan);
  commit.full = action.full;
  for (const auto& [name, value] : action.metrics) {
    auto metric = std::make_unique<fb::MetricT>();
    metric->name = name;
    metric->value = value;
    commit.metrics.push_back(std::move(metric));
  }
  commit.expert_tokens = ckpt::tokens_to_fb(action.expert_tokens);
  commit.expert_lost = ckpt::lost_to_fb(action.expert_tokens);
  commit.alarms = ckpt::to_fb(alarms);
  commit.alarms_left_out = alarms.left_out;
  ckpt::fill_extents(open.extents, commit, open.same.bases);
  const auto record = std::make_shared<fb::RecordT>(make_record(std::move(commit)));
  persist->commit(
      action.snapshot,
      [this, key = action.snapshot, record] {
        open_snapshots.at(key).timer.synced(options.stopwatch());
        // The syncs may have taken long: a commit is not older than its data on disk.
        record->body.AsCommitted()->time_ns = turn.wall_clock_ns();
        return *record;
      },
      [this, key = action.snapshot, record](const Result<uint64_t>& result) {
        committed(key, *record, result);
      });
}

void Daemon::Impl::committed(const SnapshotKey& key, const fb::RecordT& record,
                             const Result<uint64_t>& result) {
  if (!result.ok()) return carry_out(ingest.committed(key, result.error()));
  open_snapshots.at(key).timer.recorded(options.stopwatch());
  history.apply(*result, record);
  carry_out(ingest.committed(key, {}));
  const OpenSnapshotState& open = open_snapshots.at(key);
  const ckpt::SnapshotTimings& timings = open.timer.timings();
  // From the record: even if the catalog is unreadable, the commit is durable.
  const CommitInfo commit = info_of(*record.body.AsCommitted());
  staging->supersede(key, commit.units);
  health_watch.snapshot_durable(open.run_name, durable_of(commit));
  ++counters.commits;
  counters.commit_bytes += open.bytes;
  counters.level_lag += turn.now() - open.staged_at;
  counters.snapshot_parts.add(timings);
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / 1e9; };
  log_event(spdlog::level::info, "snapshot_durable",
            {{"run", open.run_name},
             {"lineage", key.lineage},
             {"epoch", key.epoch},
             {"step", key.step},
             {"bytes", open.bytes},
             {"extents", open.extents.size()},
             {"seconds", std::chrono::duration<double>(turn.now() - open.staged_at).count()},
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
  add_to_newest(key, open);
  announce(key, fb::SnapshotLevel::Durable, open.bytes, nullptr, open.alarms);
  scrub.committed(key.run, {key.lineage, key.step}, *result);
  forget_snapshot(key);
}

void Daemon::Impl::carry_out(const Ingest::FailAction& action) {
  ++counters.snapshots_failed;
  const SnapshotKey& key = action.snapshot;
  health_watch.snapshot_failed(history.run_name(key.run), key, action.error, turn.wall_clock_ns());
  comparer->abandon(action.snapshot);
  persist->abandon(action.snapshot);
  persist->release_reservation(action.snapshot);
  announce(action.snapshot, fb::SnapshotLevel::Failed, 0, &action.error);
  forget_snapshot(action.snapshot);
}

// Members of a snapshot may be in a later epoch when it becomes durable.
void Daemon::Impl::announce(const SnapshotKey& key, fb::SnapshotLevel level, uint64_t bytes,
                            const Error* error, const std::string& alarms) {
  const std::vector<SessionId> members = epochs.groups().members(key.run, key.epoch);
  std::set<SessionId> told(members.begin(), members.end());
  fb::SnapshotTimings timings;
  if (const auto open = open_snapshots.find(key); open != open_snapshots.end()) {
    for (const auto& [session, share] : open->second.shares) told.insert(session);
    if (level >= fb::SnapshotLevel::Durable) {
      timings = ckpt::wire::to_fb(open->second.timer.timings());
    }
  }
  for (const SessionId session : told) {
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
    }
    replies.send(session, std::move(state));
  }
}

// Frees the members' remaining slabs. The client's slabs can be leased to it again at once: it
// hears of the end before the lease.
void Daemon::Impl::forget_snapshot(const SnapshotKey& key) {
  const auto found = open_snapshots.find(key);
  if (found == open_snapshots.end()) return;
  const OpenSnapshotState open = std::move(found->second);
  open_snapshots.erase(found);
  snapshot_ended = true;
  for (const auto& [id, share] : open.shares) {
    const Session* session = sessions.find(id);
    if (session == nullptr) continue;
    std::erase_if(session_work[id].lease_waits,
                  [&](const LeaseWait& wait) { return wait.snapshot == key; });
    for (const uint32_t slab : share.leased) staging->unlease(*session->arena, slab);
    arenas_ready.insert(*session->arena);
  }
}

}  // namespace ckptd
