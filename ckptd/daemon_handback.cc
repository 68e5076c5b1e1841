// Return of clients after a daemon restart: memory that the last daemon left, members to their
// epoch, arenas with slabs in every state, open snapshots. All data from clients is untrusted: the
// memfd was checked when it was adopted, and every byte is checked by the write that follows each
// seal.
#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"

namespace ckptd {

// Before clients are served, because all members of an epoch must see the same versions. Of the
// kept slabs only those of valid commits are useful.
void Daemon::Impl::take_back_memory() {
  if (keeper == nullptr) return;
  const Staging::TakenBack taken = staging->take_back([this](const SnapshotKey& key) {
    const auto found = history.commit_at(key);
    if (!found.ok()) return true;  // keep if in doubt: some versions are only in memory
    const auto& commit = *found;
    return commit && commit->snapshot == key && !commit->deleted && !commit->damaged;
  });
  counters.slabs_taken_back = taken.slabs;
  counters.slabs_not_taken_back = taken.refused;
  if (taken.slabs + taken.refused == 0) return;
  spdlog::info("{} slabs with {} bytes were taken back in {} arenas; {} were not", taken.slabs,
               taken.bytes, taken.arenas, taken.refused);
}

// The commit was durable, but the last daemon did not tell this member. False: it was not.
Result<bool> Daemon::Impl::tell_committed(const Session& session, const fb::BeginSnapshotT& begin) {
  const auto run = history.catalog().run(session.run_name);
  if (!session.run || !run.ok()) return false;
  const auto member = epochs.groups().member(session.id);
  const ckpt::LineageId lineage = member ? member->lineage : run->current_lineage;
  const SnapshotKey key{.run = run->id,
                        .lineage = lineage,
                        .epoch = begin.epoch,
                        .step = begin.step,
                        .attempt = begin.attempt};
  CKPT_ASSIGN(const auto commit, history.commit_at(key));
  if (!commit || commit->snapshot != key || commit->damaged || commit->deleted) return false;
  fb::SnapshotStateT state;
  state.epoch = key.epoch;
  state.step = key.step;
  state.attempt = key.attempt;
  state.level = fb::SnapshotLevel::Durable;
  state.bytes = commit->bytes;
  const auto units = history.catalog().units(key.run);
  if (units.ok()) state.alarms = describe(commit->alarms, key.step, **units);
  replies.send(session.id, std::move(state));
  return true;
}

// Begins the snapshot anew from its member's data; its seals follow. Fails for an earlier epoch
// than the member's: some of its members may be gone, and all must take part.
void Daemon::Impl::reopen(Session& session, const fb::ReopenSnapshotT& message) {
  const fb::BeginSnapshotT& begin_message = *message.begin;
  const auto committed = tell_committed(session, begin_message);
  if (!committed.ok()) return replies.refuse(session.id, message.request, committed.error());
  if (*committed) return;
  const auto key =
      member_key(session, begin_message.epoch, begin_message.step, begin_message.attempt);
  if (!key.ok()) return replies.refuse(session.id, message.request, key.error());
  const auto fail = [&](const Error& error) {
    replies.refuse(session.id, message.request,
                   reworded(error, fmt::format("run {} step {}: {}", session.run_name,
                                               begin_message.step, error.message)));
  };
  if (!epochs.groups().member(session.id)->active) {
    return fail(make_error(ErrorCode::kAborted, "epoch {} has ended", key->epoch));
  }
  if (!session.handing_back) {
    return fail(
        make_error(ErrorCode::kFailedPrecondition,
                   "only an arena that was handed over by its last daemon has slabs of it"));
  }
  const Status checked = check_begin(session, *key, begin_message);
  if (!checked.ok()) return fail(checked.error());
  const auto units = history.catalog().units(key->run);
  if (!units.ok()) return fail(units.error());
  const auto begin = make_begin(session, *key, begin_message);
  if (!begin.ok()) return fail(begin.error());
  const Ingest::Outcome outcome = ingest.begin(*begin, *units);
  if (!outcome.status.ok()) {
    replies.refuse(session.id, message.request, outcome.status.error());
    return carry_out(outcome.actions);
  }
  open_snapshots[*key].run_name = session.run_name;
  OpenSnapshotState::Share& share = open_snapshots[*key].shares[session.id];
  share.streams = begin_message.streams;
  note_alarms(session, *key, begin_message);
  Status ready = reserve_disk(session, *key, begin_message);
  for (size_t i = 0; ready.ok() && i < message.leased.size(); ++i) {
    ready = staging->claim_leased(*session.arena, message.leased[i]);
    if (ready.ok()) {
      share.leased.insert(message.leased[i]);
      ++share.held;
    }
  }
  if (!ready.ok()) {
    fail(ready.error());
    return carry_out(ingest.abort(*key, ready.error()));
  }
  carry_out(outcome.actions);
}

// A client reports everything about its old snapshots before it requests anything new: slabs that
// it has not claimed by then are free.
void Daemon::Impl::end_handback(Session& session) {
  if (!std::exchange(session.handing_back, false)) return;
  staging->free_unclaimed(*session.arena);
}

}  // namespace ckptd
