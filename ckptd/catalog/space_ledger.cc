#include "ckptd/catalog/space_ledger.h"

#include <set>

namespace ckptd {

using ckpt::fb::ExtentT;

namespace {

// Did an earlier commit write it?
bool is_shared(const ExtentT& extent) { return extent.lineage != 0; }

}  // namespace

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
  if (commit.info.deleted) return blocks_of(commit.extents, places_of(commit.info));
  std::vector<ExtentT> own;
  for (const ExtentT& extent : commit.extents) {
    if (!is_shared(extent)) own.push_back(extent);
  }
  SpaceRanges held = whole_extents(own);
  if (own.size() == commit.extents.size()) return held;
  const SpaceRanges shared = blocks_of(commit.extents, places_of(commit.info));
  held.insert(held.end(), shared.begin(), shared.end());
  return merged(std::move(held));
}

SpaceRanges SpaceLedger::held_by_others(const values::CommitValue& commit) const {
  const ckpt::SnapshotKey& key = commit.info.snapshot;
  std::set<ViewPoint> others;
  for (const ExtentT& extent : commit.extents) {
    if (is_shared(extent)) others.insert({extent.lineage, extent.step});
    catalog_.scan(Family::kCommits, keys::sharing(key.run, extent.segment, extent.offset),
                  KvStore::Order::kAscending, [&](std::string_view at, std::string_view) {
                    const auto point = keys::lineage_step_at_end(at);
                    if (point) others.insert({point->lineage, point->step});
                    return true;
                  });
  }
  others.erase({key.lineage, key.step});
  SpaceRanges held;
  for (const ViewPoint& other : others) {
    const auto value = catalog_.read_commit(key.run, other.lineage, other.step);
    if (!value) continue;
    const SpaceRanges of_it = held_by(*value);
    held.insert(held.end(), of_it.begin(), of_it.end());
  }
  return merged(std::move(held));
}

void SpaceLedger::list_sharing(const CommitInfo& info, const std::vector<ExtentT>& extents) {
  const ckpt::SnapshotKey& key = info.snapshot;
  for (const ExtentT& extent : extents) {
    if (!is_shared(extent)) continue;
    change_.put(Family::kCommits,
                keys::sharing(key.run, extent.segment, extent.offset, key.lineage, key.step), "");
  }
}

void SpaceLedger::unlist_sharing(const CommitInfo& info, const std::vector<ExtentT>& extents) {
  const ckpt::SnapshotKey& key = info.snapshot;
  for (const ExtentT& extent : extents) {
    if (!is_shared(extent)) continue;
    change_.remove(Family::kCommits,
                   keys::sharing(key.run, extent.segment, extent.offset, key.lineage, key.step));
  }
}

void SpaceLedger::take(const values::CommitValue& commit) {
  count(commit.extents, +1);
  list_sharing(commit.info, commit.extents);
}

void SpaceLedger::shrink(values::CommitValue& commit, const SpaceRanges& held) {
  const std::vector<FragmentPlace> places = places_of(commit.info);
  const SpaceRanges left = without(held, blocks_of(commit.extents, places));
  put_dead(commit.info.snapshot.run, without(left, held_by_others(commit)));
  count(commit.extents, -1);
  unlist_sharing(commit.info, commit.extents);
  commit.extents = extents_of(commit.extents, places);
  count(commit.extents, +1);
  list_sharing(commit.info, commit.extents);
}

void SpaceLedger::give_up(const values::CommitValue& commit) {
  put_dead(commit.info.snapshot.run, without(held_by(commit), held_by_others(commit)));
  count(commit.extents, -1);
  unlist_sharing(commit.info, commit.extents);
}

void SpaceLedger::give_up_run(std::span<const values::CommitValue> commits) {
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
