#include "ckptd/catalog/space_ledger.h"

namespace ckptd {

using ckpt::fb::ExtentT;

std::vector<FragmentPlace> SpaceLedger::places_of(const CommitInfo& info) const {
  std::vector<FragmentPlace> places;
  const ckpt::SnapshotKey& key = info.snapshot;
  for (const ckpt::UnitId unit : info.units) {
    const auto version = catalog_.read_version(key.run, unit, key.lineage, key.step);
    if (!version) continue;
    places.insert(places.end(), version->places.begin(), version->places.end());
  }
  return places;
}

SpaceRanges SpaceLedger::held_by(const values::CommitValue& commit) const {
  if (!commit.info.deleted) return whole_extents(commit.extents);
  return blocks_of(commit.extents, places_of(commit.info));
}

void SpaceLedger::take(const std::vector<ExtentT>& extents) { count(extents, +1); }

void SpaceLedger::shrink(values::CommitValue& commit, const SpaceRanges& held) {
  const std::vector<FragmentPlace> places = places_of(commit.info);
  put_dead(commit.info.snapshot.run, without(held, blocks_of(commit.extents, places)));
  count(commit.extents, -1);
  commit.extents = extents_of(commit.extents, places);
  count(commit.extents, +1);
}

void SpaceLedger::give_up(std::span<const values::CommitValue> commits) {
  if (commits.empty()) return;
  SpaceRanges dead;
  for (const values::CommitValue& commit : commits) {
    const SpaceRanges held = held_by(commit);
    dead.insert(dead.end(), held.begin(), held.end());
    count(commit.extents, -1);
  }
  put_dead(commits.front().info.snapshot.run, merged(std::move(dead)));
}

void SpaceLedger::put_dead(ckpt::RunId run, const SpaceRanges& dead) {
  if (dead.empty()) return;
  change_.put(Family::kCommits, keys::dead(run, sequence_), values::encode(dead));
}

void SpaceLedger::count(const std::vector<ExtentT>& extents, int64_t by) {
  for (const ExtentT& extent : extents) live_extents_[extent.segment] += by;
}

void SpaceLedger::finish() {
  for (const auto& [segment, change] : live_extents_) {
    if (change == 0) continue;
    const auto value = catalog_.get(Family::kSegments, keys::segment(segment));
    const uint64_t before = value ? keys::u64_at(*value, 0).value_or(0) : 0;
    const uint64_t after = before + static_cast<uint64_t>(change);
    if (after == 0) {
      change_.remove(Family::kSegments, keys::segment(segment));
    } else {
      change_.put(Family::kSegments, keys::segment(segment), keys::number(after));
    }
  }
}

}  // namespace ckptd
