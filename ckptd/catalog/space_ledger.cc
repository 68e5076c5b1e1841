#include "ckptd/catalog/space_ledger.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace ckptd {

using ckpt::is_shared;
using ckpt::fb::ExtentT;

namespace {

bool holds_all(const values::CommitValue& commit, const ExtentT& extent) {
  return !commit.info.deleted && !is_shared(extent);
}

void append(SpaceRanges& ranges, const SpaceRanges& more) {
  ranges.insert(ranges.end(), more.begin(), more.end());
}

// Appends the places of a version and their bases: a delta is unreadable without its base.
void append_with_bases(std::vector<FragmentPlace>& to, const std::vector<FragmentPlace>& places) {
  for (const FragmentPlace& place : places) {
    to.push_back(place);
    if (place.base) to.push_back(base_of(place));
  }
}

}  // namespace

std::vector<FragmentPlace> SpaceLedger::places_of(const CommitInfo& info) const {
  std::vector<FragmentPlace> places;
  const ckpt::SnapshotKey& key = info.snapshot;
  for (const ckpt::UnitId unit : info.units) {
    const auto version = catalog_.read_version(key.run, unit, key.lineage, key.step);
    if (!version) continue;
    append_with_bases(places, version->places);
  }
  return places;
}

// The blocks that the commit holds of an extent that it does not hold as a whole.
SpaceRanges SpaceLedger::part_held(const ckpt::SnapshotKey& key, const ExtentT& extent) const {
  const auto value =
      catalog_.get(Family::kCommits,
                   keys::holding(key.run, extent.segment, extent.offset, key.lineage, key.step));
  auto held = value ? values::decode_ranges(*value) : std::nullopt;
  if (!held) catalog_.damaged(Family::kCommits, fmt::format("space of step {}", key.step));
  return held ? std::move(*held) : SpaceRanges();
}

SpaceRanges SpaceLedger::held_by(const values::CommitValue& commit) const {
  std::vector<ExtentT> whole;
  SpaceRanges held;
  for (const ExtentT& extent : commit.extents) {
    if (holds_all(commit, extent)) {
      whole.push_back(extent);
    } else {
      append(held, part_held(commit.info.snapshot, extent));
    }
  }
  append(held, whole_extents(whole));
  return merged(std::move(held));
}

// A writer that still exists holds all of its extents. Writers are checked first, which often saves
// the look-up of other holders. A writer at this commit's own step is an earlier, replaced attempt.
SpaceRanges SpaceLedger::exclusively_held(const values::CommitValue& commit,
                                          SpaceRanges blocks) const {
  const ckpt::SnapshotKey& key = commit.info.snapshot;
  std::set<ViewPoint> writers;
  for (const ExtentT& extent : commit.extents) {
    if (is_shared(extent)) writers.insert({extent.lineage, extent.step});
  }
  writers.erase({key.lineage, key.step});
  for (const ViewPoint& writer : writers) {
    const auto value = catalog_.read_commit(key.run, writer.lineage, writer.step);
    if (!value) continue;
    std::vector<ExtentT> whole = value->extents;
    std::erase_if(whole, [&](const ExtentT& extent) { return !holds_all(*value, extent); });
    blocks = without(blocks, whole_extents(whole));
  }
  SpaceRanges free;
  for (const ExtentT& extent : commit.extents) {
    SpaceRanges here = within(blocks, whole_extents({extent}).front());
    if (!here.empty()) append(free, without_parts_of_others(key, extent, std::move(here)));
  }
  return merged(std::move(free));
}

// Usually the first holder that the scan visits holds all of the blocks.
SpaceRanges SpaceLedger::without_parts_of_others(const ckpt::SnapshotKey& key,
                                                 const ExtentT& extent, SpaceRanges blocks) const {
  const ViewPoint own{key.lineage, key.step};
  catalog_.scan(Family::kCommits, keys::holding(key.run, extent.segment, extent.offset),
                KvStore::Order::kAscending, [&](std::string_view at, std::string_view value) {
                  const auto point = keys::lineage_step_at_end(at);
                  const auto ranges = values::decode_ranges(value);
                  if (!point || !ranges) {
                    catalog_.damaged(Family::kCommits, "space of a commit");
                  } else if (ViewPoint{point->lineage, point->step} != own) {
                    blocks = without(blocks, *ranges);
                  }
                  return !blocks.empty();
                });
  return blocks;
}

void SpaceLedger::list_parts(const values::CommitValue& commit,
                             const std::vector<FragmentPlace>& places) {
  std::map<ExtentBegin, std::vector<FragmentPlace>> by_extent;
  for (const FragmentPlace& place : places) {
    by_extent[{place.segment, place.extent_offset}].push_back(place);
  }
  const ckpt::SnapshotKey& key = commit.info.snapshot;
  for (const ExtentT& extent : commit.extents) {
    if (holds_all(commit, extent)) continue;
    const SpaceRanges held = blocks_of({extent}, by_extent[{extent.segment, extent.offset}]);
    change_.put(Family::kCommits,
                keys::holding(key.run, extent.segment, extent.offset, key.lineage, key.step),
                values::encode(held));
  }
}

// Removes only listed keys: tombstones of keys that never existed would slow down scans.
void SpaceLedger::unlist_parts(const values::CommitValue& commit) {
  const ckpt::SnapshotKey& key = commit.info.snapshot;
  for (const ExtentT& extent : commit.extents) {
    if (holds_all(commit, extent)) continue;
    change_.remove(Family::kCommits,
                   keys::holding(key.run, extent.segment, extent.offset, key.lineage, key.step));
  }
}

void SpaceLedger::take(const values::CommitValue& commit, const PlacesByUnit& units) {
  count(commit.extents, +1);
  if (std::none_of(commit.extents.begin(), commit.extents.end(), is_shared)) return;
  std::vector<FragmentPlace> shared;
  for (const auto& [unit, places] : units) append_with_bases(shared, places);
  std::erase_if(shared, [](const FragmentPlace& place) { return !place.shared(); });
  list_parts(commit, shared);
}

SpaceRanges SpaceLedger::detach(const values::CommitValue& commit) {
  unlist_parts(commit);
  return held_by(commit);
}

void SpaceLedger::shrink(values::CommitValue& commit, const SpaceRanges& held) {
  const std::vector<FragmentPlace> places = places_of(commit.info);
  const SpaceRanges left = without(held, blocks_of(commit.extents, places));
  put_dead(commit.info.snapshot.run, exclusively_held(commit, left));
  count(commit.extents, -1);
  commit.extents = extents_of(commit.extents, places);
  count(commit.extents, +1);
  list_parts(commit, places);
}

void SpaceLedger::move(values::CommitValue& commit, const std::vector<ExtentT>& from,
                       const std::vector<ExtentT>& to, const std::vector<FragmentPlace>& places) {
  const auto leaves = [&from](const ExtentT& extent) {
    return std::any_of(from.begin(), from.end(), [&extent](const ExtentT& one) {
      return one.segment == extent.segment && one.offset == extent.offset;
    });
  };
  const values::CommitValue before{.info = commit.info, .extents = from, .record = {}};
  put_dead(commit.info.snapshot.run, detach(before));
  count(from, -1);
  const auto first = std::find_if(commit.extents.begin(), commit.extents.end(), leaves);
  commit.extents.insert(first, to.begin(), to.end());
  std::erase_if(commit.extents, leaves);
  count(to, +1);
  list_parts({.info = commit.info, .extents = to, .record = {}}, places);
}

void SpaceLedger::release(const values::CommitValue& commit) {
  put_dead(commit.info.snapshot.run, exclusively_held(commit, detach(commit)));
  count(commit.extents, -1);
}

void SpaceLedger::release_run(std::span<const values::CommitValue> commits) {
  if (commits.empty()) return;
  SpaceRanges dead;
  for (const values::CommitValue& commit : commits) {
    append(dead, held_by(commit));
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
