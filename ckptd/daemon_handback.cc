// Return of clients after a daemon restart: memory that the last daemon left, and members to their
// epoch. Their open snapshots return through Snapshots::reopen(). All data from clients is
// untrusted: the memfd was checked when it was adopted, and every byte is checked by the write that
// follows each seal.
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

// The deadline for members from before a restart to rejoin has passed.
void Daemon::Impl::end_rejoins() {
  rejoin_deadline_over = true;
  const Groups::Actions actions = groups.rejoin_deadline_passed();
  for (const Groups::Action& action : actions) {
    const auto* ended = std::get_if<Groups::EndEpoch>(&action);
    if (ended != nullptr) counters.members_lost += ended->lost.size();
  }
  carry_out(actions);
  for (auto& [id, session] : sessions.all()) snapshots->end_handback(session);
}

void Daemon::Impl::rejoin(Session& session, const fb::RejoinEpochT& message) {
  if (!session.run || !session.arena) {
    return replies.refuse(
        session.id, message.request,
        make_error(ErrorCode::kFailedPrecondition,
                   "run {}: a trainer registers its units before it rejoins a group",
                   session.run_name));
  }
  if (const Status allowed = may_train(session, history.catalog()); !allowed.ok()) {
    return replies.refuse(session.id, message.request, allowed.error());
  }
  const auto lineage =
      groups.rejoin(*session.run, session.id, message.rank, message.epoch, message.job);
  if (!lineage.ok()) {
    return replies.refuse(session.id, message.request,
                          Error{lineage.error().code, fmt::format("run {}: {}", session.run_name,
                                                                  lineage.error().message)});
  }
  replies.done(session.id, message.request);
}

}  // namespace ckptd
