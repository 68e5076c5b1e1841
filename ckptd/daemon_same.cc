// Dedup: fragments whose bytes are already on disk are not written again; the commit references the
// existing extents. The bytes were compared (same/comparer.h), and their versions are held until
// the commit is settled: no prune removes them, and commits are marked damaged only while the store
// is opened, before there is any snapshot.
#include <fmt/format.h>

#include <algorithm>

#include "ckptd/daemon_impl.h"
#include "ckptd/daemon_versions.h"
#include "ckptd/persist/slab_parts.h"
#include "ckptd/safeguards.h"

namespace ckptd {

namespace {

// Upper bound in a commit's record, in bytes.
constexpr uint64_t kPlaceRecordBytes = sizeof(fb::Fragment) + sizeof(fb::Encoded);

bool is_whole(const ckpt::ExtentFragment& fragment, const ckpt::UnitSpec& unit) {
  return fragment.offset == 0 && fragment.length == unit.bytes;
}

NewestFragments::Sum sum_of(const auto& piece) {
  return {.offset = piece.offset, .length = piece.length, .crc32c = piece.crc32c};
}

// An extent of an earlier commit, as a shared extent.
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

// True if, by data in memory, the unit's newest version has this range and CRC32C. The cuts of a
// version that this daemon has not seen committed are looked up once.
bool may_be_same(const ckpt::ExtentFragment& fragment, const ckpt::UnitSpec& unit,
                 const UnitSum& newest, NewestFragments& cuts, VersionLookups& lookups) {
  if (is_whole(fragment, unit)) return fragment.crc32c == newest.crc32c;
  if (!cuts.knows(fragment.unit)) {
    const UnitVersion* version = lookups.of(fragment.unit);
    if (version == nullptr) return false;
    std::vector<NewestFragments::Sum> sums;
    sums.reserve(version->fragments.size());
    for (const FragmentPlace& place : version->fragments) sums.push_back(sum_of(place));
    cuts.set(fragment.unit, std::move(sums));
  }
  return cuts.may_have(fragment);
}

}  // namespace

// True if deletions of the run are on their way to the journal, or the index lacks some record: no
// new reference to any version of the run may be made.
bool Daemon::Impl::changing(ckpt::RunId run) const {
  return !gate.may(RunActivity::kReference, run) || !history.current();
}

// Adds the cuts of units whose newest version this commit has.
void Daemon::Impl::add_to_newest_cuts(const SnapshotKey& key,
                                      const std::vector<WrittenExtent>& extents,
                                      RunNewest& newest) {
  const UnitSpecList units = history.catalog().units(key.run).value();
  std::map<ckpt::UnitId, std::vector<NewestFragments::Sum>> cut;
  for (const WrittenExtent& extent : extents) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) {
      const bool known = fragment.unit < newest.versions.size() && newest.versions[fragment.unit];
      if (!known || newest.versions[fragment.unit]->step != key.step) continue;
      if (is_whole(fragment, (*units)[fragment.unit])) {
        newest.cuts.forget(fragment.unit);
      } else {
        cut[fragment.unit].push_back(sum_of(fragment));
      }
    }
  }
  for (auto& [unit, sums] : cut) newest.cuts.set(unit, std::move(sums));
}

// Fragments whose bytes may be on disk. Their versions are held from here on. Returns none while
// versions are being deleted, or while the index lacks such changes. If everything has changed,
// the cost is only a few comparisons in memory per fragment.
std::vector<SameCandidate> Daemon::Impl::find_same(const SnapshotKey& key, const StagedSlab& slab) {
  if (changing(key.run)) return {};
  const UnitSpecList units = history.catalog().units(key.run).value();
  const NewestVersions& newest = newest_of_run(key, units->size());
  if (newest.empty()) return {};
  NewestFragments& cuts = newest_by_run.at(key.run).cuts;
  VersionLookups lookups(history.catalog(), key.run, newest);
  const auto& fragments = slab.fragments();
  std::vector<bool> may(fragments.size(), false);
  for (size_t i = 0; i < fragments.size(); ++i) {
    const ckpt::UnitId unit = fragments[i].unit;
    may[i] =
        newest[unit] && may_be_same(fragments[i], (*units)[unit], *newest[unit], cuts, lookups);
  }
  if (std::find(may.begin(), may.end(), true) == may.end()) return {};
  may = left_out_of_slab(fragments, may, options.same_bytes_min);
  std::vector<SameCandidate> candidates;
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (!may[i]) continue;
    const UnitVersion* version = lookups.of(fragments[i].unit);
    if (version == nullptr) continue;
    const auto places = exact_cover(version->fragments, fragments[i].offset, fragments[i].length,
                                    fragments[i].crc32c);
    if (!places.empty() && hold_version(key, *version, places)) {
      candidates.push_back({i, {places.begin(), places.end()}});
    }
  }
  if (!history.catalog().health().ok()) return {};  // write what could not be looked up
  return candidates;
}

// Protects the version from prunes until the snapshot is settled. False: it cannot be shared.
bool Daemon::Impl::hold_version(const SnapshotKey& key, const UnitVersion& version,
                                std::span<const FragmentPlace> places) {
  OpenSnapshotState& open = open_snapshots.at(key);
  if (open.same.fragments + places.size() > limits::kFragmentsPerSnapshotMax) return false;
  const ViewPoint commit{version.snapshot.lineage, version.snapshot.step};
  if (!open.same.commits.contains(commit)) {
    const std::vector<fb::ExtentT> extents = history.catalog().extents(key.run, commit);
    if (!history.catalog().health().ok()) return false;
    if (open.same.extents.size() + extents.size() > limits::kExtentsPerSnapshotMax) return false;
    open.same.commits.insert(commit);
    for (const fb::ExtentT& extent : extents) {
      open.same.extents.try_emplace({extent.segment, extent.offset},
                                    earlier_extent(extent, version.snapshot));
    }
  }
  const auto listed_extent = [&](const auto& place) {
    return open.same.extents.contains({place.segment, place.extent_offset});
  };
  const bool listed = std::all_of(places.begin(), places.end(), [&](const FragmentPlace& place) {
    return listed_extent(place) && (!place.base || listed_extent(*place.base));
  });
  if (!listed) return false;
  open.same.held.insert({commit, version.unit});
  open.same.fragments += places.size();
  return true;
}

// Expected headers of the candidates' extents.
std::vector<SameExtent> Daemon::Impl::extents_of(
    const SnapshotKey& key, const std::vector<SameCandidate>& candidates) const {
  std::set<std::pair<ckpt::SegmentId, uint64_t>> places;
  for (const SameCandidate& candidate : candidates) {
    for (const FragmentPlace& place : candidate.places) {
      places.insert({place.segment, place.extent_offset});
      if (place.base) places.insert({place.base->segment, place.base->extent_offset});
    }
  }
  return extents_at(key, places);
}

std::vector<SameExtent> Daemon::Impl::extents_at(
    const SnapshotKey& key, const std::set<std::pair<ckpt::SegmentId, uint64_t>>& places) const {
  std::vector<SameExtent> extents;
  extents.reserve(places.size());
  for (const auto& place : places) {
    const WrittenExtent& extent = open_snapshots.at(key).same.extents.at(place);
    extents.push_back({.expected = {.store = history.store_id(),
                                    .segment = extent.segment,
                                    .offset = extent.offset,
                                    .snapshot = *extent.writer,
                                    .rank = extent.rank,
                                    .payload_bytes = extent.payload_bytes,
                                    .payload_crc32c = extent.payload_crc32c,
                                    .fragments = {}},
                       .header_bytes = extent.header_bytes,
                       .header_crc32c = extent.header_crc32c});
  }
  return extents;
}

// The journal space for writing the slab is already reserved. Shared fragments may need more pieces
// and more extents: reserves the difference.
bool Daemon::Impl::reserve_shared(const SnapshotKey& key,
                                  const std::vector<SameCandidate>& candidates,
                                  const std::vector<bool>& left_out) {
  const SameVersions& same = open_snapshots.at(key).same;
  std::set<std::pair<ckpt::SegmentId, uint64_t>> extents;
  uint64_t bytes = 0;
  for (const SameCandidate& candidate : candidates) {
    if (!left_out[candidate.fragment]) continue;
    bytes += candidate.places.size() * kPlaceRecordBytes - sizeof(fb::Fragment);
    for (const FragmentPlace& place : candidate.places) {
      const std::pair at{place.segment, place.extent_offset};
      if (same.extents.at(at).fragments.empty()) extents.insert(at);
      if (!place.base) continue;
      bytes += sizeof(fb::Base);
      extents.insert({place.base->segment, place.base->extent_offset});
    }
  }
  bytes += extents.size() * kSharedExtentRecordBytes;
  return bytes == 0 || persist->try_reserve(key, 0, bytes);
}

// Fragments of the slab that need no write; records their existing places for the commit.
std::vector<bool> Daemon::Impl::share_same(const SnapshotKey& key, const StagedSlab& slab,
                                           const std::vector<SameCandidate>& candidates,
                                           const std::vector<bool>& same) {
  OpenSnapshotState& open = open_snapshots.at(key);
  std::vector<bool> left_out = left_out_of_slab(slab.fragments(), same, options.same_bytes_min);
  if (!reserve_shared(key, candidates, left_out)) return {};
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
                                  .encoded_bytes = place.encoded_bytes,
                                  .base_crc32c = place.base ? place.base->crc32c : 0});
      if (place.base) note_base(open, extent.fragments.back(), *place.base);
    }
  }
  return left_out;
}

// Before the commit: lists the earlier extents with shared bytes, or with bases of deltas, among
// the snapshot's own.
void Daemon::Impl::list_shared_extents(OpenSnapshotState& open) {
  std::set<std::pair<ckpt::SegmentId, uint64_t>> of_bases;
  const auto look = [&](const WrittenExtent& extent) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) {
      if (!ckpt::is_delta(fragment.codec)) continue;
      const WrittenBase& base = open.same.bases.at({fragment.unit, fragment.offset});
      of_bases.insert({base.segment, base.extent_offset});
    }
  };
  for (const WrittenExtent& extent : open.extents) look(extent);
  for (const auto& [place, extent] : open.same.extents) look(extent);
  for (auto& [place, extent] : open.same.extents) {
    if (extent.fragments.empty() && !of_bases.contains(place)) continue;
    // Comparisons have ended in any order.
    std::sort(extent.fragments.begin(), extent.fragments.end(),
              [](const ckpt::ExtentFragment& a, const ckpt::ExtentFragment& b) {
                return a.payload_offset < b.payload_offset;
              });
    open.extents.push_back(std::move(extent));
  }
  open.same.extents.clear();
}

std::vector<HeldVersion> Daemon::Impl::versions_held(ckpt::RunId run) const {
  std::vector<HeldVersion> held;
  if (left_out(Safeguard::kHeldVersions)) return held;
  for (const auto& [key, open] : open_snapshots) {
    if (key.run != run) continue;
    for (const auto& [commit, unit] : open.same.held) held.push_back({commit, unit});
  }
  return held;
}

}  // namespace ckptd
