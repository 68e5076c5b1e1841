// Units that are what they were: of fragments whose bytes the disk has already nothing is written,
// and the commit says where they lie. The bytes were compared (same/comparer.h), and the versions
// that have them stay until the commit is settled.
#include <fmt/format.h>

#include <algorithm>

#include "ckptd/daemon_impl.h"
#include "ckptd/persist/slab_parts.h"

namespace ckptd {

namespace {

constexpr ckpt::Step kNow = ~ckpt::Step{0};

NewestFragments::Sum sum_of(const auto& piece) {
  return {.offset = piece.offset, .length = piece.length, .crc32c = piece.crc32c};
}

// Of a commit that another one has bytes of.
WrittenExtent earlier_extent(const fb::ExtentT& extent, const SnapshotKey& commit) {
  WrittenExtent earlier{.segment = extent.segment,
                        .offset = extent.offset,
                        .header_bytes = extent.header_bytes,
                        .payload_bytes = extent.payload_bytes,
                        .header_crc32c = extent.header_crc32c,
                        .payload_crc32c = extent.payload_crc32c,
                        .rank = extent.rank,
                        .fragments = {}};
  earlier.writer = extent.lineage == 0 ? commit
                                       : SnapshotKey{commit.run, extent.lineage, extent.epoch,
                                                     extent.step, extent.attempt};
  return earlier;
}

}  // namespace

// What was learnt of another line of history is not of this one's newest versions.
NewestFragments& Daemon::Impl::newest_fragments_of(const SnapshotKey& key) {
  RunFragments& newest = fragments_by_run[key.run];
  if (newest.lineage != key.lineage) newest = {.lineage = key.lineage, .fragments = {}};
  return newest.fragments;
}

// Each unit is looked up once in a line of history; commits are added as they come.
void Daemon::Impl::learn_newest(const SnapshotKey& key, ckpt::UnitId unit,
                                NewestFragments& newest) {
  const auto version = catalog->newest_version(key.run, unit, {key.lineage, kNow}, std::nullopt);
  std::vector<NewestFragments::Sum> sums;
  if (version) {
    sums.reserve(version->fragments.size());
    for (const FragmentPlace& place : version->fragments) sums.push_back(sum_of(place));
  }
  newest.set(unit, std::move(sums));
}

void Daemon::Impl::add_to_newest_fragments(const SnapshotKey& key,
                                           const std::vector<WrittenExtent>& extents) {
  const auto found = fragments_by_run.find(key.run);
  if (found == fragments_by_run.end() || found->second.lineage != key.lineage) return;
  std::map<ckpt::UnitId, std::vector<NewestFragments::Sum>> units;
  for (const WrittenExtent& extent : extents) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) {
      units[fragment.unit].push_back(sum_of(fragment));
    }
  }
  for (auto& [unit, sums] : units) found->second.fragments.set(unit, std::move(sums));
}

// Fragments whose bytes may be on the disk. Their versions are held from here on. While versions
// are being deleted, or the index lacks some deletion, none is.
std::vector<SameCandidate> Daemon::Impl::find_same(const SnapshotKey& key, const StagedSlab& slab) {
  if (pruning == key.run || !catalog_current()) return {};
  NewestFragments& newest = newest_fragments_of(key);
  const auto run = catalog->run(key.run);
  const bool first = run.ok() && run->commits == 0;  // nothing to look up yet
  const auto& fragments = slab.fragments();
  std::vector<bool> may(fragments.size(), false);
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (!first && !newest.knows(fragments[i].unit)) learn_newest(key, fragments[i].unit, newest);
    may[i] = newest.may_have(fragments[i]);
  }
  may = left_out_of_slab(fragments, may);
  std::vector<SameCandidate> candidates;
  std::optional<UnitVersion> version;
  for (size_t i = 0; i < fragments.size(); ++i) {
    const ckpt::ExtentFragment& fragment = fragments[i];
    if (!may[i]) continue;
    if (!version || version->unit != fragment.unit) {
      version = catalog->newest_version(key.run, fragment.unit, {key.lineage, kNow}, std::nullopt);
    }
    if (!version) continue;
    const auto places =
        exact_cover(version->fragments, fragment.offset, fragment.length, fragment.crc32c);
    if (!places.empty() && hold_version(key, *version, places)) {
      candidates.push_back({i, {places.begin(), places.end()}});
    }
  }
  return candidates;
}

// Until the snapshot is settled no prune lets go of it. False: it cannot be referred to.
bool Daemon::Impl::hold_version(const SnapshotKey& key, const UnitVersion& version,
                                std::span<const FragmentPlace> places) {
  OpenSnapshotState& open = open_snapshots.at(key);
  if (open.same.fragments + places.size() > limits::kFragmentsPerSnapshotMax) return false;
  const ViewPoint commit{version.snapshot.lineage, version.snapshot.step};
  if (open.same.commits.insert(commit).second) {
    for (const fb::ExtentT& extent : catalog->extents(key.run, commit)) {
      open.same.extents.try_emplace({extent.segment, extent.offset},
                                    earlier_extent(extent, version.snapshot));
    }
  }
  const bool listed = std::all_of(places.begin(), places.end(), [&](const FragmentPlace& place) {
    return open.same.extents.contains({place.segment, place.extent_offset});
  });
  if (!listed) return false;
  open.same.held.insert({commit, version.unit});
  open.same.fragments += places.size();
  return true;
}

// Which fragments of the slab need not be written; where they lie is noted for the commit.
std::vector<bool> Daemon::Impl::share_same(const SnapshotKey& key, const StagedSlab& slab,
                                           const std::vector<SameCandidate>& candidates,
                                           const std::vector<bool>& same) {
  OpenSnapshotState& open = open_snapshots.at(key);
  std::vector<bool> left_out = left_out_of_slab(slab.fragments(), same);
  for (const SameCandidate& candidate : candidates) {
    if (!left_out[candidate.fragment]) continue;
    counters.same_bytes += slab.fragments()[candidate.fragment].length;
    for (const FragmentPlace& place : candidate.places) {
      WrittenExtent& extent = open.same.extents.at({place.segment, place.extent_offset});
      const uint64_t payload = extent.offset + extent.header_bytes;
      extent.fragments.push_back({.unit = slab.fragments()[candidate.fragment].unit,
                                  .codec = place.codec,
                                  .offset = place.offset,
                                  .length = place.length,
                                  .payload_offset = place.payload_offset - payload,
                                  .crc32c = place.crc32c,
                                  .encoded_crc32c = place.encoded_crc32c,
                                  .encoded_bytes = place.encoded_bytes});
    }
  }
  return left_out;
}

// Before it is committed: the extents of others that it has bytes of are listed with its own.
void Daemon::Impl::list_shared_extents(OpenSnapshotState& open) {
  for (auto& [place, extent] : open.same.extents) {
    if (!extent.fragments.empty()) open.extents.push_back(std::move(extent));
  }
  open.same.extents.clear();
}

std::vector<HeldVersion> Daemon::Impl::versions_held(ckpt::RunId run) const {
  std::vector<HeldVersion> held;
  for (const auto& [key, open] : open_snapshots) {
    if (key.run != run) continue;
    for (const auto& [commit, unit] : open.same.held) held.push_back({commit, unit});
  }
  return held;
}

}  // namespace ckptd
