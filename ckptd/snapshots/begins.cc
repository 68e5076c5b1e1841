#include "ckptd/snapshots/begins.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/snapshots/alarm_check.h"
#include "ckptd/snapshots/begin_space.h"
#include "formats/commit.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SnapshotKey;

namespace {

Error about_step(const std::string& run_name, ckpt::Step step, const Error& error) {
  return reworded(error, fmt::format("run {} step {}: {}", run_name, step, error.message));
}

}  // namespace

// One member cannot take part: the others must not wait for it until the deadline.
void Begins::refuse_snapshot(const SnapshotKey& key, const std::string& run_name,
                             const Error& error) {
  const auto commit = core_.needs.history.commit_at(key);
  // Keeps the snapshot if it is committed, or may be.
  if (!commit.ok() || (*commit && (*commit)->snapshot == key)) return;
  core_.execute(core_.ingest.refuse(key, about_step(run_name, key.step, error)));
}

void Begins::begin(Session& session, const fb::BeginSnapshotT& message) {
  leases_.end_handback(session);
  const SnapshotNeeds& needs = core_.needs;
  const auto key = checks_.member_key(session, message.epoch, message.step, message.attempt);
  if (!key.ok()) return needs.replies.refuse(session.id, message.request, key.error());
  const auto fail = [&](const Error& error) {
    needs.replies.refuse(session.id, message.request,
                         about_step(session.run_name, message.step, error));
  };
  if (!needs.member(session.id)->active) {
    return fail(make_error(ErrorCode::kAborted, "epoch {} has ended", message.epoch));
  }
  if (needs.is_draining()) {
    return fail(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  const auto units = checks_.units(*key, message);
  const Status checked =
      units.ok() ? checks_.check(session, *key, *units, message) : Status(units.error());
  if (!checked.ok()) {
    fail(checked.error());
    return refuse_snapshot(*key, session.run_name, checked.error());
  }
  const bool full = !core_.ingest.is_open(*key) && !core_.ingest.failure(*key) &&
                    core_.ingest.open(key->run).size() >= limits::kSnapshotsOpenPerRunMax;
  if (full && message.out_of_slabs == fb::OutOfSlabs::Wait) {
    const auto waits = waiting_.add(key->run, session.id, message);
    if (!waits.ok()) return fail(waits.error());
    if (*waits) return;
  }
  if (full) ++core_.counters.skipped;
  const auto begin = checks_.make_begin(session, *key, *units, message);
  if (!begin.ok()) return fail(begin.error());
  const Ingest::Outcome outcome = core_.ingest.begin(*begin, units->all);
  if (!outcome.status.ok()) {
    needs.replies.refuse(session.id, message.request, outcome.status.error());
    return core_.execute(outcome.actions);
  }
  note_open(session, *key, *units, message);
  unpin_memory_if_begun(*key);
  const Status ready = reserve_and_lease(session, *key, message);
  if (!ready.ok()) {
    fail(ready.error());
    return core_.execute(core_.ingest.cancel_begin(*key, ready.error()));
  }
  core_.execute(outcome.actions);
}

// A member has begun the snapshot.
OpenSnapshotState& Begins::note_open(const Session& session, const SnapshotKey& key,
                                     const BeginChecks::Units& units,
                                     const fb::BeginSnapshotT& message) {
  OpenSnapshotState& open = core_.open[key];
  open.run_name = session.run_name;
  if (open.units == nullptr) {
    open.units = units.all;
    open.grown = units.all->size() - units.known;
  }
  open.shares[session.id].streams = message.streams;
  AlarmCheck::note(session, message, open);
  registrations_.note_growth(session.run_name, units.growth);
  return open;
}

// The memory that the epoch was resumed from stays pinned until all members have begun a snapshot:
// by then each has finished its restore.
void Begins::unpin_memory_if_begun(const SnapshotKey& key) {
  const size_t begun = core_.open.at(key).shares.size();
  if (begun >= core_.needs.members(key.run, key.epoch).size()) {
    core_.needs.staging.unpin_memory(key.run);
  }
}

Status Begins::reserve_disk(const Session& session, const SnapshotKey& key,
                            const fb::BeginSnapshotT& message) {
  const SnapshotNeeds& needs = core_.needs;
  OpenSnapshotState& open = core_.open.at(key);
  // Once per snapshot, when its first member begins: all its slabs are treated alike. Encoded
  // fragments need more journal space.
  uint64_t growth_bytes = 0;
  if (!std::exchange(open.codecs_chosen, true)) {
    open.encode_plan = registrations_.encode_plan(open.run_name, open.units, needs.options.codec);
    for (size_t i = open.units->size() - open.grown; i < open.units->size(); ++i) {
      growth_bytes += ckpt::grown_bytes((*open.units)[i]);
    }
  }
  const auto bytes = disk_bytes(message);
  if (!bytes) return make_error(ErrorCode::kInvalidArgument, "its fragments add up to too much");
  const uint64_t slab_bytes = needs.staging.layout(*session.arena).slab_bytes;
  const bool encoded = open.encode_plan != nullptr;
  const uint32_t members = needs.member(session.id)->size;
  return needs.persist.reserve(key, *bytes,
                               record_bytes(message, slab_bytes, encoded) + growth_bytes,
                               snapshot_disk_bytes(message, *open.units, members, slab_bytes));
}

// Disk space and slabs for this member's part: free slabs at once, the rest as they become free.
// OutOfSlabs::Skip waits only for slabs that need no disk: slabs being faulted in, or pinned.
Status Begins::reserve_and_lease(Session& session, const SnapshotKey& key,
                                 const fb::BeginSnapshotT& message) {
  CKPT_TRY(reserve_disk(session, key, message));
  Staging& staging = core_.needs.staging;
  std::vector<uint32_t> slabs;
  if (!leases_.waits(session.id) && message.slabs_wanted > 0) {
    slabs = staging.lease(*session.arena, message.slabs_wanted);
  }
  const auto missing = message.slabs_wanted - static_cast<uint32_t>(slabs.size());
  const uint32_t most = staging.leasable(*session.arena);
  const uint64_t soon = staging.memory_pinned(key.run) ? most : staging.preparing(*session.arena);
  const uint64_t awaited = leases_.slabs_awaited(session.id);
  const bool lacks = missing > soon - std::min(soon, awaited);
  if (lacks && message.out_of_slabs == fb::OutOfSlabs::Skip) {
    return skip(session, key, message, slabs);
  }
  leases_.give(session.id, key, message.request, std::move(slabs));
  if (missing == 0) return {};
  return leases_.add(session, {.snapshot = key,
                               .request = message.request,
                               .count = missing,
                               .since = core_.needs.turn.now()});
}

// The error of a snapshot that is skipped: `slabs` are too few.
Status Begins::skip(const Session& session, const SnapshotKey& key,
                    const fb::BeginSnapshotT& message, const std::vector<uint32_t>& slabs) {
  for (const uint32_t slab : slabs) core_.needs.staging.unlease(*session.arena, slab);
  ++core_.counters.skipped;
  const ckpt::Rank rank = core_.needs.member(session.id)->rank;
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
  const bool others = core_.ingest.open(key.run).size() > 1;
  return make_error(ErrorCode::kResourceExhausted,
                    "skipped: {} of the {} slabs that this rank needs are free{}", slabs.size(),
                    message.slabs_wanted,
                    others ? ", as earlier snapshots are not written yet" : "");
}

void Begins::lease(Session& session, const fb::LeaseSlabsT& message) {
  leases_.end_handback(session);
  const SnapshotNeeds& needs = core_.needs;
  const auto member = needs.member(session.id);
  const auto key =
      checks_.member_key(session, member ? member->epoch : 0, message.step, message.attempt);
  if (!key.ok()) return needs.replies.refuse(session.id, message.request, key.error());
  const auto open = core_.open.find(*key);
  if (open == core_.open.end() || !open->second.shares.contains(session.id)) {
    const auto failure = core_.ingest.failure(*key);
    return needs.replies.refuse(session.id, message.request,
                                failure ? *failure
                                        : make_error(ErrorCode::kFailedPrecondition,
                                                     "run {} step {}: no such open snapshot",
                                                     session.run_name, message.step));
  }
  const Status added = leases_.add(session, {.snapshot = *key,
                                             .request = message.request,
                                             .count = message.count,
                                             .since = needs.turn.now()});
  if (added.ok()) return leases_.serve(session);
  needs.replies.refuse(session.id, message.request,
                       about_step(session.run_name, message.step, added.error()));
  core_.execute(core_.ingest.abort(*key, added.error()));
}

void Begins::abort(Session& session, const fb::AbortSnapshotT& message) {
  const SnapshotNeeds& needs = core_.needs;
  const auto key = checks_.member_key(session, message.epoch, message.step, message.attempt);
  if (!key.ok()) return needs.replies.refuse(session.id, message.request, key.error());
  needs.replies.done(session.id, message.request);
  // A begin that still waits has no state except its message.
  const bool waited = waiting_.drop(key->run, session.id, message.step, message.attempt);
  const Error error = make_error(ErrorCode::kAborted, "rank {} aborted it: {}",
                                 needs.member(session.id)->rank, message.reason);
  if (waited) refuse_snapshot(*key, session.run_name, error);
  core_.execute(core_.ingest.abort(*key, error));
}

void Begins::retry() {
  waiting_.retry([this](const WaitingBegin& waiting) {
    Session* session = core_.needs.sessions.find(waiting.session);
    if (session != nullptr) begin(*session, waiting.message);
  });
}

void Begins::refuse_waiting() {
  const Error error = make_error(ErrorCode::kUnavailable, "the daemon is shutting down");
  waiting_.drop_all([&](const WaitingBegin& waiting) {
    core_.needs.replies.refuse(waiting.session, waiting.message.request, error);
  });
}

// The commit was durable, but the last daemon did not tell this member. False: it was not.
Result<bool> Begins::answer_if_committed(const Session& session, const fb::BeginSnapshotT& begin) {
  const SnapshotNeeds& needs = core_.needs;
  const Catalog& catalog = needs.history.catalog();
  const auto run = catalog.run(session.run_name);
  if (!session.run || !run.ok()) return false;
  const auto member = needs.member(session.id);
  const ckpt::LineageId lineage = member ? member->lineage : run->current_lineage;
  const SnapshotKey key{.run = run->id,
                        .lineage = lineage,
                        .epoch = begin.epoch,
                        .step = begin.step,
                        .attempt = begin.attempt};
  CKPT_ASSIGN(const auto commit, needs.history.commit_at(key));
  if (!commit || commit->snapshot != key || commit->damaged || commit->deleted) return false;
  fb::SnapshotStateT state;
  state.epoch = key.epoch;
  state.step = key.step;
  state.attempt = key.attempt;
  state.level = fb::SnapshotLevel::Durable;
  state.bytes = commit->bytes;
  const auto units = catalog.units(key.run);
  if (units.ok()) state.alarms = describe(commit->alarms, key.step, **units);
  needs.replies.send(session.id, std::move(state));
  return true;
}

Status Begins::claim(const Session& session, const std::vector<uint32_t>& slabs,
                     OpenSnapshotState::Share& share) {
  for (const uint32_t slab : slabs) {
    CKPT_TRY(core_.needs.staging.claim_leased(*session.arena, slab));
    share.leased.insert(slab);
    ++share.held;
  }
  return {};
}

void Begins::reopen(Session& session, const fb::ReopenSnapshotT& message) {
  const SnapshotNeeds& needs = core_.needs;
  const fb::BeginSnapshotT& part = *message.begin;
  const auto committed = answer_if_committed(session, part);
  if (!committed.ok()) {
    return needs.replies.refuse(session.id, message.request, committed.error());
  }
  if (*committed) return;
  const auto key = checks_.member_key(session, part.epoch, part.step, part.attempt);
  if (!key.ok()) return needs.replies.refuse(session.id, message.request, key.error());
  const auto fail = [&](const Error& error) {
    needs.replies.refuse(session.id, message.request,
                         about_step(session.run_name, part.step, error));
  };
  if (!needs.member(session.id)->active) {
    return fail(make_error(ErrorCode::kAborted, "epoch {} has ended", key->epoch));
  }
  if (!session.handing_back) {
    return fail(
        make_error(ErrorCode::kFailedPrecondition,
                   "only an arena that was handed over by its last daemon has slabs of it"));
  }
  const auto units = checks_.units(*key, part);
  if (!units.ok()) return fail(units.error());
  const Status checked = checks_.check(session, *key, *units, part);
  if (!checked.ok()) return fail(checked.error());
  const auto begin = checks_.make_begin(session, *key, *units, part);
  if (!begin.ok()) return fail(begin.error());
  const Ingest::Outcome outcome = core_.ingest.begin(*begin, units->all);
  if (!outcome.status.ok()) {
    needs.replies.refuse(session.id, message.request, outcome.status.error());
    return core_.execute(outcome.actions);
  }
  OpenSnapshotState& open = note_open(session, *key, *units, part);
  Status ready = reserve_disk(session, *key, part);
  if (ready.ok()) ready = claim(session, message.leased, open.shares[session.id]);
  if (!ready.ok()) {
    fail(ready.error());
    return core_.execute(core_.ingest.cancel_begin(*key, ready.error()));
  }
  core_.execute(outcome.actions);
}

}  // namespace ckptd
