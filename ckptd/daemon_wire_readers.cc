// Wiring of readers/: what restores, verifies and holds need from the rest of the daemon.
#include <algorithm>

#include "ckptd/daemon_impl.h"

namespace ckptd {

Readers::Needs Daemon::Impl::readers_needs() {
  return {
      .disk = disk,
      .executor = executor,
      .history = history,
      .turn = turn,
      .replies = replies,
      .sessions = sessions,
      .staging = [this]() -> Staging& { return *staging; },
      .segments = [this]() -> SegmentReader& { return *segments; },
      .is_draining = [this] { return draining; },
      .earlier_snapshots = [this](SessionId session) { return earlier_snapshots(session); },
      .removes_commits = [this](ckpt::RunId run) { return !gate.may(RunActivity::kHold, run); },
      .on_reader_gone = [this] { space.reader_gone(); },
      .on_verified = [this](const VerifyReport& report, const std::vector<std::string>& whole_runs,
                            uint64_t began_ns) { scrub.verified(report, whole_runs, began_ns); },
      .on_damage = [this](const SnapshotKey& commit) { scrub.doubted(commit); }};
}

std::optional<EarlierSnapshots> Daemon::Impl::earlier_snapshots(SessionId session) const {
  const auto member = epochs.groups().member(session);
  if (!member) return std::nullopt;
  const bool open = std::ranges::any_of(snapshots->open(member->run), [&](const SnapshotKey& key) {
    return key.epoch < member->epoch;
  });
  if (!open) return std::nullopt;
  return EarlierSnapshots{.epoch = member->epoch, .epoch_active = member->active};
}

}  // namespace ckptd
