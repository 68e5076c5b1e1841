// Begin of a snapshot: checks, reservation of disk space, leases of slabs.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/daemon_begin_space.h"
#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/staging/arena_quota.h"
#include "formats/step.h"

namespace ckptd {

namespace {

bool is_ascii(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Status check_metrics(const fb::BeginSnapshotT& message) {
  if (message.metrics.size() > limits::kMetricsPerSnapshotMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} metrics, the most is {}",
                      message.metrics.size(), limits::kMetricsPerSnapshotMax);
  }
  for (const auto& metric : message.metrics) {
    if (metric == nullptr || metric->name.empty() ||
        metric->name.size() > limits::kMetricNameBytesMax || !is_ascii(metric->name)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "a metric's name has 1 to {} printable ASCII characters",
                        limits::kMetricNameBytesMax);
    }
  }
  return {};
}

// Estimated memory of a waiting begin, in bytes.
size_t memory_bytes(const fb::BeginSnapshotT& message) {
  return sizeof(message) +
         (message.units.size() + message.memory_units.size()) * sizeof(ckpt::UnitId) +
         message.fragments.size() * sizeof(fb::Range) +
         message.metrics.size() * (sizeof(fb::MetricT) + limits::kMetricNameBytesMax) +
         (message.expert_tokens.size() + message.expert_lost.size()) * sizeof(fb::ExpertTokens);
}

}  // namespace

Result<SnapshotKey> Daemon::Impl::member_key(const Session& session, ckpt::Epoch epoch,
                                             ckpt::Step step, uint32_t attempt) const {
  const auto member = epochs.groups().member(session.id);
  if (!member || member->epoch != epoch) {
    return make_error(ErrorCode::kAborted, "run {} step {}: not a member of epoch {}",
                      session.run_name, step, epoch);
  }
  return SnapshotKey{.run = member->run,
                     .lineage = member->lineage,
                     .epoch = epoch,
                     .step = step,
                     .attempt = attempt};
}

// Checks that need no snapshot. The caller adds `key` to the message.
Status Daemon::Impl::check_begin(const Session& session, const SnapshotKey& key,
                                 const fb::BeginSnapshotT& message) {
  CKPT_TRY(ckpt::check_step(key.step));
  // An unreadable catalog must not count as "no commit of this step": the new commit would replace
  // the existing one, whose space would be reclaimed.
  CKPT_ASSIGN(const auto existing, history.commit_at(key));
  if (existing && !existing->damaged && !existing->deleted) {
    return make_error(ErrorCode::kAlreadyExists, "lineage {} has a commit of this step already",
                      key.lineage);
  }
  if (existing && existing->deleted && !existing->units.empty()) {
    return make_error(ErrorCode::kAlreadyExists,
                      "lineage {} had a commit of this step, and views of later commits need {} of "
                      "its units",
                      key.lineage, existing->units.size());
  }
  for (const SnapshotKey& other : ingest.open(key.run)) {
    if (other.lineage == key.lineage && other.step == key.step && other != key) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "attempt {} of this step, of epoch {}, is still open", other.attempt,
                        other.epoch);
    }
  }
  CKPT_ASSIGN(const auto lineages, history.catalog().lineages(key.run));
  for (const Lineage& lineage : lineages) {
    if (lineage.id != key.lineage || lineage.parent == 0 || key.step >= lineage.fork_step) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "lineage {} begins at step {}: it has no earlier steps", key.lineage,
                      lineage.fork_step);
  }
  const uint32_t leasable = session.arena ? staging->leasable(*session.arena) : 0;
  if (message.slabs_wanted > leasable) {
    return snapshot_too_large(
        "this rank's part of the snapshot", message.slabs_wanted, leasable,
        session.arena ? staging->layout(*session.arena) : ckpt::ArenaLayout());
  }
  CKPT_TRY(check_metrics(message));
  return check_tokens(key, message);
}

// Counts that contradict an older commit of the view's line of history.
Status Daemon::Impl::check_tokens(const SnapshotKey& key, const fb::BeginSnapshotT& message) {
  CKPT_ASSIGN(const auto units, history.catalog().units(key.run));
  CKPT_ASSIGN(const auto counts,
              ckpt::check_expert_tokens(message.expert_tokens, message.expert_lost, *units));
  if (counts.empty()) return {};
  CKPT_ASSIGN(const auto earlier, history.read([&] {
    return Result(history.catalog().newest_expert_tokens(key.run, {key.lineage, key.step}));
  }));
  if (!earlier) return {};
  return check_not_less(earlier->counts, earlier->commit.step, counts);
}

// One member cannot take part: the others must not wait for it until the deadline.
void Daemon::Impl::refuse_snapshot(const SnapshotKey& key, const std::string& run_name,
                                   const Error& error) {
  const auto commit = history.commit_at(key);
  // Not if it is committed, or may be.
  if (!commit.ok() || (*commit && (*commit)->snapshot == key)) return;
  carry_out(ingest.refuse(
      key, reworded(error, fmt::format("run {} step {}: {}", run_name, key.step, error.message))));
}

Result<Ingest::Begin> Daemon::Impl::make_begin(const Session& session, const SnapshotKey& key,
                                               const fb::BeginSnapshotT& message) const {
  const auto member = epochs.groups().member(session.id);
  Ingest::Begin begin;
  begin.snapshot = key;
  begin.run_name = session.run_name;
  begin.rank = member->rank;
  begin.group_size = member->size;
  begin.plan = ckpt::wire::from_fb(message.plan);
  begin.units = message.units;
  begin.memory_units = message.memory_units;
  for (const fb::Range& range : message.fragments) {
    begin.fragments.push_back(
        {.unit = range.unit(), .offset = range.offset(), .length = range.length()});
  }
  for (const auto& metric : message.metrics) begin.metrics[metric->name] = metric->value;
  CKPT_ASSIGN(const auto units, history.catalog().units(key.run));
  CKPT_ASSIGN(begin.expert_tokens,
              ckpt::check_expert_tokens(message.expert_tokens, message.expert_lost, *units));
  begin.deadline = turn.now() + options.snapshot_deadline;
  return begin;
}

// False: there is no room to queue it.
Result<bool> Daemon::Impl::wait_to_begin(const Session& session, const SnapshotKey& key,
                                         const fb::BeginSnapshotT& message) {
  auto& waiting = waiting_begins[key.run];
  size_t bytes = memory_bytes(message);
  for (const auto& [run, begins] : waiting_begins) {
    for (const WaitingBegin& begin : begins) bytes += memory_bytes(begin.message);
  }
  const bool twice = std::any_of(waiting.begin(), waiting.end(), [&](const WaitingBegin& begin) {
    return begin.session == session.id && begin.message.step == message.step;
  });
  if (twice) {
    return make_error(ErrorCode::kAlreadyExists, "this rank waits to begin this step already");
  }
  if (waiting.size() >= limits::kBeginsWaitingPerRunMax || bytes > limits::kBeginsWaitingBytesMax) {
    return false;
  }
  waiting.push_back({session.id, message});
  return true;
}

void Daemon::Impl::begin_snapshot(Session& session, const fb::BeginSnapshotT& message) {
  end_handback(session);
  const auto key = member_key(session, message.epoch, message.step, message.attempt);
  if (!key.ok()) return replies.refuse(session.id, message.request, key.error());
  const auto fail = [&](const Error& error) {
    replies.refuse(session.id, message.request,
                   reworded(error, fmt::format("run {} step {}: {}", session.run_name, message.step,
                                               error.message)));
  };
  if (!epochs.groups().member(session.id)->active) {
    return fail(make_error(ErrorCode::kAborted, "epoch {} has ended", message.epoch));
  }
  if (draining) return fail(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  const Status checked = check_begin(session, *key, message);
  if (!checked.ok()) {
    fail(checked.error());
    return refuse_snapshot(*key, session.run_name, checked.error());
  }
  const bool full = !ingest.is_open(*key) && !ingest.failure(*key) &&
                    ingest.open(key->run).size() >= limits::kSnapshotsOpenPerRunMax;
  if (full && message.out_of_slabs == fb::OutOfSlabs::Wait) {
    const auto waits = wait_to_begin(session, *key, message);
    if (!waits.ok()) return fail(waits.error());
    if (*waits) return;
  }
  if (full) ++counters.snapshots_skipped;
  const auto units = history.catalog().units(key->run);
  if (!units.ok()) return fail(units.error());
  const auto begin = make_begin(session, *key, message);
  if (!begin.ok()) return fail(begin.error());
  const Ingest::Outcome outcome = ingest.begin(*begin, *units);
  if (!outcome.status.ok()) {
    replies.refuse(session.id, message.request, outcome.status.error());
    return carry_out(outcome.actions);
  }
  open_snapshots[*key].run_name = session.run_name;
  open_snapshots[*key].shares[session.id].streams = message.streams;
  note_alarms(session, *key, message);
  unpin_memory_if_begun(*key);
  const Status ready = reserve_and_lease(session, *key, message);
  if (!ready.ok()) {
    fail(ready.error());
    return carry_out(ingest.abort(*key, ready.error()));
  }
  carry_out(outcome.actions);
}

// The memory that the epoch was resumed from stays pinned until all members have begun a snapshot:
// by then each has finished its restore.
void Daemon::Impl::unpin_memory_if_begun(const SnapshotKey& key) {
  const size_t begun = open_snapshots.at(key).shares.size();
  if (begun >= epochs.groups().members(key.run, key.epoch).size()) staging->unpin_memory(key.run);
}

Status Daemon::Impl::reserve_disk(const Session& session, const SnapshotKey& key,
                                  const fb::BeginSnapshotT& message) {
  choose_codecs(key);  // encoded fragments need more journal space
  const auto bytes = disk_bytes(message);
  if (!bytes) return make_error(ErrorCode::kInvalidArgument, "its fragments add up to too much");
  const uint64_t slab_bytes = staging->layout(*session.arena).slab_bytes;
  const bool encoded = open_snapshots.at(key).encode_plan != nullptr;
  CKPT_ASSIGN(const auto units, history.catalog().units(key.run));
  const uint32_t members = epochs.groups().member(session.id)->size;
  return persist->reserve(key, *bytes, record_bytes(message, slab_bytes, encoded),
                          snapshot_disk_bytes(message, *units, members, slab_bytes));
}

// Disk space and slabs for this member's part: free slabs at once, the rest as they become free.
// OutOfSlabs::Skip waits only for slabs that need no disk: slabs being faulted in, or pinned.
Status Daemon::Impl::reserve_and_lease(Session& session, const SnapshotKey& key,
                                       const fb::BeginSnapshotT& message) {
  CKPT_TRY(reserve_disk(session, key, message));
  std::vector<uint32_t> slabs;
  if (session_work[session.id].lease_waits.empty() && message.slabs_wanted > 0) {
    slabs = staging->lease(*session.arena, message.slabs_wanted);
  }
  const auto missing = message.slabs_wanted - static_cast<uint32_t>(slabs.size());
  const uint32_t most = staging->leasable(*session.arena);
  const bool skips = message.out_of_slabs == fb::OutOfSlabs::Skip;
  uint32_t soon = staging->memory_pinned(key.run) ? most : staging->preparing(*session.arena);
  for (const auto& earlier : session_work[session.id].lease_waits)
    soon -= std::min(soon, earlier.count);
  if (missing > soon && skips) {
    for (const uint32_t slab : slabs) staging->unlease(*session.arena, slab);
    ++counters.snapshots_skipped;
    const ckpt::Rank rank = epochs.groups().member(session.id)->rank;
    log_event(spdlog::level::warn, "snapshot_skipped",
              {{"run", session.run_name},
               {"lineage", key.lineage},
               {"epoch", key.epoch},
               {"step", key.step},
               {"rank", rank},
               {"slabs", slabs.size()},
               {"slabs_wanted", message.slabs_wanted}},
              "run {} step {}: skipped: rank {} has {} of the {} slabs it needs", session.run_name,
              key.step, rank, slabs.size(), message.slabs_wanted);
    const bool others = ingest.open(key.run).size() > 1;
    return make_error(ErrorCode::kResourceExhausted,
                      "skipped: {} of the {} slabs that this rank needs are free{}", slabs.size(),
                      message.slabs_wanted,
                      others ? ", as earlier snapshots are not written yet" : "");
  }
  OpenSnapshotState::Share& share = open_snapshots.at(key).shares.at(session.id);
  share.leased.insert(slabs.begin(), slabs.end());
  share.held += static_cast<uint32_t>(slabs.size());
  fb::SlabsLeasedT reply;
  reply.request = message.request;
  reply.step = message.step;
  reply.attempt = message.attempt;
  reply.slabs = std::move(slabs);
  replies.send(session.id, std::move(reply));
  if (missing == 0) return {};
  return add_lease_wait(
      session,
      {.snapshot = key, .request = message.request, .count = missing, .since = turn.now()});
}

void Daemon::Impl::lease_slabs(Session& session, const fb::LeaseSlabsT& message) {
  end_handback(session);
  const auto member = epochs.groups().member(session.id);
  const auto key = member_key(session, member ? member->epoch : 0, message.step, message.attempt);
  if (!key.ok()) return replies.refuse(session.id, message.request, key.error());
  const auto open = open_snapshots.find(*key);
  if (open == open_snapshots.end() || !open->second.shares.contains(session.id)) {
    const auto failure = ingest.failure(*key);
    return replies.refuse(session.id, message.request,
                          failure ? *failure
                                  : make_error(ErrorCode::kFailedPrecondition,
                                               "run {} step {}: no such open snapshot",
                                               session.run_name, message.step));
  }
  const Status added = add_lease_wait(
      session,
      {.snapshot = *key, .request = message.request, .count = message.count, .since = turn.now()});
  if (added.ok()) return serve_lease_waits(session);
  const Error error = reworded(added.error(), fmt::format("run {} step {}: {}", session.run_name,
                                                          message.step, added.error().message));
  replies.refuse(session.id, message.request, error);
  carry_out(ingest.abort(*key, added.error()));
}

// A snapshot keeps its slabs until it is durable, unless it streams: a request that could never be
// met is refused.
Status Daemon::Impl::add_lease_wait(Session& session, const LeaseWait& wait) {
  const OpenSnapshotState::Share& share = open_snapshots.at(wait.snapshot).shares.at(session.id);
  uint64_t wanted = wait.count + (share.streams ? 0 : uint64_t{share.held});
  for (const LeaseWait& other : session_work[session.id].lease_waits) {
    if (other.snapshot == wait.snapshot) wanted += other.count;
  }
  const uint32_t leasable = session.arena ? staging->leasable(*session.arena) : 0;
  if (wait.count == 0 || wanted > leasable ||
      session_work[session.id].lease_waits.size() >= limits::kPendingRequestsPerSessionMax) {
    return snapshot_too_large(
        "the snapshot", wanted, leasable,
        session.arena ? staging->layout(*session.arena) : ckpt::ArenaLayout());
  }
  ++counters.lease_waits;
  session_work[session.id].lease_waits.push_back(wait);
  return {};
}

// In the order of requests: a small later request does not overtake a large one.
void Daemon::Impl::serve_lease_waits(Session& session) {
  while (!session_work[session.id].lease_waits.empty() && !session.handing_back) {
    LeaseWait& wait = session_work[session.id].lease_waits.front();
    const std::vector<uint32_t> slabs = staging->lease(*session.arena, wait.count);
    if (slabs.empty()) return;
    OpenSnapshotState::Share& share = open_snapshots.at(wait.snapshot).shares.at(session.id);
    share.leased.insert(slabs.begin(), slabs.end());
    share.held += static_cast<uint32_t>(slabs.size());
    fb::SlabsLeasedT reply;
    reply.request = wait.request;
    reply.step = wait.snapshot.step;
    reply.attempt = wait.snapshot.attempt;
    reply.slabs = slabs;
    wait.count -= static_cast<uint32_t>(slabs.size());
    if (wait.count == 0) {
      counters.lease_wait_time += turn.now() - wait.since;
      session_work[session.id].lease_waits.pop_front();
    }
    replies.send(session.id, std::move(reply));
  }
}

// A snapshot has ended: waiting begins are retried in the order of their arrival.
void Daemon::Impl::retry_waiting_begins() {
  for (auto& [run, begins] : waiting_begins) {
    const std::deque<WaitingBegin> again = std::exchange(begins, {});
    for (const WaitingBegin& begin : again) {
      Session* session = sessions.find(begin.session);
      if (session != nullptr) begin_snapshot(*session, begin.message);
    }
  }
}

}  // namespace ckptd
