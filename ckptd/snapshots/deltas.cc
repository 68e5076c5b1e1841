#include "ckptd/snapshots/deltas.h"

#include <algorithm>
#include <set>

#include "ckptd/codec/pieces.h"
#include "ckptd/limits.h"
#include "ckptd/snapshots/version_lookups.h"

namespace ckptd {

using ckpt::SnapshotKey;

namespace {

// The base for a delta to this newest version: the version itself or, if that is a delta, its base.
// Neither is a delta, so there are no chains.
std::optional<BasePlace> base_for(const FragmentPlace& place, const SnapshotKey& commit) {
  if (place.length < limits::kEncodedBytesMin) return std::nullopt;
  if (place.base) {
    if (place.base->deltas >= limits::kDeltasPerBaseMax) return std::nullopt;
    BasePlace base = *place.base;
    ++base.deltas;
    return base;
  }
  const ViewPoint own{commit.lineage, commit.step};
  return BasePlace{.crc32c = place.crc32c,
                   .codec = place.codec,
                   .segment = place.segment,
                   .extent_offset = place.extent_offset,
                   .payload_offset = place.payload_offset,
                   .encoded_crc32c = place.encoded_crc32c,
                   .encoded_bytes = place.encoded_bytes,
                   .written_by = place.shared() ? place.written_by : own,
                   .deltas = 1};
}

// Bases for the pieces that the version has cut alike, each returned as the place of the piece's
// next delta.
std::vector<FragmentPlace> with_bases(const ckpt::ExtentFragment& fragment,
                                      const ckpt::UnitSpec& unit, const UnitVersion& version) {
  std::vector<FragmentPlace> found;
  const ckpt::UnitRange range{fragment.unit, fragment.offset, fragment.length};
  for (const Piece& piece : cut_pieces(unit, range)) {
    const auto place =
        std::ranges::lower_bound(version.fragments, piece.offset, {}, &FragmentPlace::offset);
    const bool alike = place != version.fragments.end() && place->offset == piece.offset &&
                       place->length == piece.length;
    const auto base = alike ? base_for(*place, version.snapshot) : std::nullopt;
    if (!base) continue;
    found.push_back(*place);
    found.back().base = base;
  }
  return found;
}

}  // namespace

std::shared_ptr<BaseSource> Deltas::find_bases(const SnapshotKey& key, OpenSnapshotState& open,
                                               const StagedSlab& slab,
                                               const std::vector<bool>& left_out) {
  const EncodePlan& plan = open.encode_plan;
  if (plan == nullptr || !plan->any_deltas) return nullptr;
  if (versions_change(needs_, key.run)) return nullptr;
  const NewestVersions& newest = newest_.of(key, plan->units->size());
  if (newest.empty()) return nullptr;
  const Catalog& catalog = needs_.history.catalog();
  VersionLookups lookups(catalog, key.run, newest);
  std::vector<BaseReader::Base> bases;
  std::set<ExtentBegin> extents;
  for (size_t i = 0; i < slab.fragments().size(); ++i) {
    const ckpt::ExtentFragment& fragment = slab.fragments()[i];
    const bool written = left_out.empty() || !left_out[i];
    if (!written || !plan->may_be_delta(fragment.unit)) continue;
    const UnitVersion* version = lookups.of(fragment.unit);
    if (version == nullptr) continue;
    const auto places = with_bases(fragment, plan->units->at(fragment.unit), *version);
    if (places.empty() || !open.shared.hold(catalog, *version, places)) continue;
    for (const FragmentPlace& place : places) {
      open.shared.note_base(fragment.unit, place.offset, *place.base);
      bases.push_back({fragment.unit, base_of(place)});
      extents.insert({place.base->segment, place.base->extent_offset});
    }
  }
  // Bases that could not be looked up are left out: their pieces are stored whole.
  if (bases.empty() || !catalog.health().ok()) return nullptr;
  const uint64_t record_bytes =
      ckpt::encoded_bytes({.bases = bases.size(), .shared_extents = extents.size()});
  if (!needs_.persist.try_reserve(key, 0, record_bytes)) return nullptr;
  return reader_.of_slab(std::move(bases),
                         open.shared.headers(needs_.history.store_id(), key, extents));
}

}  // namespace ckptd
