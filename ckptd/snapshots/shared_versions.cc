#include "ckptd/snapshots/shared_versions.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "formats/codec.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::SnapshotKey;

bool SharedVersions::hold(const Catalog& catalog, const UnitVersion& version,
                          std::span<const FragmentPlace> places) {
  if (fragments_ + places.size() > limits::kFragmentsPerSnapshotMax) return false;
  const ViewPoint commit{version.snapshot.lineage, version.snapshot.step};
  if (!commits_.contains(commit)) {
    const std::vector<fb::ExtentT> extents = catalog.extents(version.snapshot.run, commit);
    if (!catalog.health().ok()) return false;
    if (extents_.size() + extents.size() > limits::kExtentsPerSnapshotMax) return false;
    commits_.insert(commit);
    for (const fb::ExtentT& extent : extents) {
      extents_.try_emplace({extent.segment, extent.offset},
                           WrittenExtent{ckpt::as_shared(extent, version.snapshot), {}});
    }
  }
  const auto listed_extent = [&](const auto& place) {
    return extents_.contains({place.segment, place.extent_offset});
  };
  const bool listed = std::all_of(places.begin(), places.end(), [&](const FragmentPlace& place) {
    return listed_extent(place) && (!place.base || listed_extent(*place.base));
  });
  if (!listed) return false;
  held_.insert({commit, version.unit});
  fragments_ += places.size();
  return true;
}

std::vector<DedupExtent> SharedVersions::headers(const ckpt::base::Hash128& store,
                                                 const SnapshotKey& snapshot,
                                                 const std::set<ExtentBegin>& places) const {
  std::vector<DedupExtent> extents;
  extents.reserve(places.size());
  for (const ExtentBegin& place : places) {
    const WrittenExtent& extent = extents_.at(place);
    extents.push_back({.expected = {.store = store,
                                    .segment = extent.segment,
                                    .offset = extent.offset,
                                    .snapshot = ckpt::writer_of(extent, snapshot),
                                    .rank = extent.rank,
                                    .payload_bytes = extent.payload_bytes,
                                    .payload_crc32c = extent.payload_crc32c,
                                    .fragments = {}},
                       .header_bytes = extent.header_bytes,
                       .header_crc32c = extent.header_crc32c});
  }
  return extents;
}

void SharedVersions::share(ckpt::UnitId unit, const FragmentPlace& place) {
  WrittenExtent& extent = extents_.at({place.segment, place.extent_offset});
  const uint64_t payload = extent.offset + extent.header_bytes;
  extent.fragments.push_back({.unit = unit,
                              .codec = place.codec,
                              .offset = place.offset,
                              .length = place.length,
                              .payload_offset = place.payload_offset - payload,
                              .crc32c = place.crc32c,
                              .encoded_crc32c = place.encoded_crc32c,
                              .encoded_bytes = place.encoded_bytes,
                              .base_crc32c = place.base ? place.base->crc32c : 0});
  if (place.base) note_base(unit, place.offset, *place.base);
}

void SharedVersions::note_base(ckpt::UnitId unit, uint64_t offset, const BasePlace& base) {
  const WrittenExtent& extent = extents_.at({base.segment, base.extent_offset});
  bases_[{unit, offset}] = {
      .segment = base.segment,
      .extent_offset = base.extent_offset,
      .payload_offset = base.payload_offset - extent.offset - extent.header_bytes,
      .crc32c = base.crc32c,
      .codec = base.codec,
      .encoded_crc32c = base.encoded_crc32c,
      .encoded_bytes = base.encoded_bytes,
      .deltas = base.deltas};
}

void SharedVersions::list_extents(std::vector<WrittenExtent>& extents) {
  std::set<ExtentBegin> of_bases;
  const auto add_bases = [&](const WrittenExtent& extent) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) {
      if (!ckpt::is_delta(fragment.codec)) continue;
      const ckpt::WrittenBase& base = bases_.at({fragment.unit, fragment.offset});
      of_bases.insert({base.segment, base.extent_offset});
    }
  };
  for (const WrittenExtent& extent : extents) add_bases(extent);
  for (const auto& [place, extent] : extents_) add_bases(extent);
  for (auto& [place, extent] : extents_) {
    if (extent.fragments.empty() && !of_bases.contains(place)) continue;
    // Comparisons have ended in any order.
    std::sort(extent.fragments.begin(), extent.fragments.end(),
              [](const ckpt::ExtentFragment& a, const ckpt::ExtentFragment& b) {
                return a.payload_offset < b.payload_offset;
              });
    extents.push_back(std::move(extent));
  }
  extents_.clear();
}

}  // namespace ckptd
