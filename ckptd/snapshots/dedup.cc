#include "ckptd/snapshots/dedup.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ckptd/persist/slab_parts.h"
#include "formats/blob.h"

namespace ckptd {

using ckpt::SnapshotKey;

namespace {

// True if, by data in memory, the unit's newest version has this range and CRC32C. The cuts of a
// version that this daemon has not seen committed are looked up once.
bool may_be_duplicate(const ckpt::ExtentFragment& fragment, const ckpt::UnitSpec& unit,
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

// The extents that the candidates reference.
std::set<ExtentBegin> extents_of(const std::vector<DedupCandidate>& candidates) {
  std::set<ExtentBegin> extents;
  for (const DedupCandidate& candidate : candidates) {
    for (const FragmentPlace& place : candidate.places) {
      extents.insert({place.segment, place.extent_offset});
      if (place.base) extents.insert({place.base->segment, place.base->extent_offset});
    }
  }
  return extents;
}

}  // namespace

Dedup::Dedup(const SnapshotNeeds& needs, RunNewestCache& newest, SnapshotCounters& counters)
    : needs_(needs),
      newest_(newest),
      counters_(counters),
      comparer_(needs.earlier, {.bytes_min = needs.options.dedup_bytes_min,
                                .on_abandoned = needs.on_reads_abandoned}) {}

std::vector<DedupCandidate> Dedup::find(const SnapshotKey& key, OpenSnapshotState& open,
                                        const StagedSlab& slab) {
  if (versions_change(needs_, key.run)) return {};
  const Catalog& catalog = needs_.history.catalog();
  const UnitSpecList& units = open.units;
  const NewestVersions& newest = newest_.of(key, units->size());
  if (newest.empty()) return {};
  NewestFragments& cuts = newest_.cuts(key.run);
  VersionLookups lookups(catalog, key.run, newest);
  const auto& fragments = slab.fragments();
  std::vector<bool> may(fragments.size(), false);
  for (size_t i = 0; i < fragments.size(); ++i) {
    const ckpt::UnitId unit = fragments[i].unit;
    if (ckpt::is_blob(unit)) continue;  // always written: it belongs to its commit alone
    may[i] = newest[unit] &&
             may_be_duplicate(fragments[i], (*units)[unit], *newest[unit], cuts, lookups);
  }
  if (std::find(may.begin(), may.end(), true) == may.end()) return {};
  may = left_out_of_slab(fragments, may, needs_.options.dedup_bytes_min);
  std::vector<DedupCandidate> candidates;
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (!may[i]) continue;
    const UnitVersion* version = lookups.of(fragments[i].unit);
    if (version == nullptr) continue;
    const auto places = exact_cover(version->fragments, fragments[i].offset, fragments[i].length,
                                    fragments[i].crc32c);
    if (!places.empty() && open.shared.hold(catalog, *version, places)) {
      candidates.push_back({i, {places.begin(), places.end()}});
    }
  }
  if (!catalog.health().ok()) return {};  // write what could not be looked up
  return candidates;
}

void Dedup::compare(const SnapshotKey& key, const OpenSnapshotState& open, StagedSlab slab,
                    const std::vector<DedupCandidate>& candidates, Comparer::Done on_done) {
  comparer_.compare(key, std::move(slab), candidates,
                    open.shared.headers(needs_.history.store_id(), key, extents_of(candidates)),
                    std::move(on_done));
}

// The journal space for writing the slab is already reserved. Shared fragments may need more pieces
// and more extents: reserves the difference.
bool Dedup::reserve(const SnapshotKey& key, const SharedVersions& shared,
                    const std::vector<DedupCandidate>& candidates,
                    const std::vector<bool>& left_out) {
  std::set<ExtentBegin> extents;
  ckpt::CommitSize size;
  for (const DedupCandidate& candidate : candidates) {
    if (!left_out[candidate.fragment]) continue;
    size.fragments += candidate.places.size() - 1;
    size.encoded += candidate.places.size();
    for (const FragmentPlace& place : candidate.places) {
      const ExtentBegin extent{place.segment, place.extent_offset};
      if (!shared.shares(extent)) extents.insert(extent);
      if (!place.base) continue;
      ++size.bases;
      extents.insert({place.base->segment, place.base->extent_offset});
    }
  }
  size.shared_extents = extents.size();
  const uint64_t bytes = ckpt::encoded_bytes(size);
  return bytes == 0 || needs_.persist.try_reserve(key, 0, bytes);
}

std::vector<bool> Dedup::share(const SnapshotKey& key, OpenSnapshotState& open,
                               const StagedSlab& slab,
                               const std::vector<DedupCandidate>& candidates,
                               const std::vector<bool>& same) {
  std::vector<bool> left_out =
      left_out_of_slab(slab.fragments(), same, needs_.options.dedup_bytes_min);
  if (!reserve(key, open.shared, candidates, left_out)) return {};
  for (const DedupCandidate& candidate : candidates) {
    if (!left_out[candidate.fragment]) continue;
    const ckpt::ExtentFragment& fragment = slab.fragments()[candidate.fragment];
    counters_.dedup_bytes += fragment.length;
    for (const FragmentPlace& place : candidate.places) open.shared.share(fragment.unit, place);
  }
  return left_out;
}

}  // namespace ckptd
