#include "ckptd/persist/shortage_watch.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

namespace {

// Steps decrease only in a later epoch.
bool is_later(const ckpt::SnapshotKey& a, const ckpt::SnapshotKey& b) {
  return std::tie(a.epoch, a.step, a.attempt) > std::tie(b.epoch, b.step, b.attempt);
}

}  // namespace

void ShortageWatch::note(const ckpt::SnapshotKey& snapshot, const DiskShortage& shortage) {
  ++count_;
  if (shortage.of_journal) {
    journal_needed_bytes_ = shortage.needed_bytes;
  } else {
    Need& need = needs_[snapshot.run];
    if (is_later(need.snapshot, snapshot)) return;
    // A piece may find no room after another one has noted the need of the whole snapshot.
    const uint64_t noted = need.snapshot == snapshot ? need.bytes : 0;
    need = {.snapshot = snapshot, .bytes = std::max(noted, shortage.needed_bytes)};
  }
}

void ShortageWatch::found_room(const ckpt::SnapshotKey& snapshot) {
  const auto need = needs_.find(snapshot.run);
  if (need != needs_.end() && is_later(snapshot, need->second.snapshot)) needs_.erase(need);
}

void ShortageWatch::forget() {
  needs_.clear();
  journal_needed_bytes_.reset();
}

std::optional<DiskShortage> ShortageWatch::now(DiskRoom room,
                                               const std::function<bool(uint64_t)>& journal_lacks) {
  const uint64_t there = room.available_bytes();
  std::erase_if(needs_, [there](const auto& need) { return need.second.bytes <= there; });
  const bool of_journal =
      !room.journal_has_room || (journal_needed_bytes_ && journal_lacks(*journal_needed_bytes_));
  if (!of_journal) journal_needed_bytes_.reset();
  if (!of_journal && there > 0 && needs_.empty()) return std::nullopt;
  DiskShortage shortage{.room = std::move(room), .needed_bytes = 0, .of_journal = of_journal};
  if (of_journal) {
    shortage.needed_bytes = journal_needed_bytes_.value_or(limits::kJournalReserveMin);
    return shortage;
  }
  for (const auto& [run, need] : needs_) {
    shortage.needed_bytes = std::max(shortage.needed_bytes, need.bytes);
  }
  return shortage;
}

}  // namespace ckptd
