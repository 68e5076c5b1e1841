// Deltas: finds bases for the pieces of a slab. A base is held from here on, like a shared extent,
// and listed in the commit, so that it stays as long as the commit (daemon_same.cc).
#include <algorithm>

#include "ckptd/codec/pieces.h"
#include "ckptd/daemon_impl.h"
#include "ckptd/daemon_versions.h"

namespace ckptd {

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

void Daemon::Impl::note_base(OpenSnapshotState& open, const ckpt::ExtentFragment& fragment,
                             const BasePlace& base) {
  const WrittenExtent& extent = open.same.extents.at({base.segment, base.extent_offset});
  open.same.bases[{fragment.unit, fragment.offset}] = {
      .segment = base.segment,
      .extent_offset = base.extent_offset,
      .payload_offset = base.payload_offset - extent.offset - extent.header_bytes,
      .crc32c = base.crc32c,
      .codec = base.codec,
      .encoded_crc32c = base.encoded_crc32c,
      .encoded_bytes = base.encoded_bytes,
      .deltas = base.deltas};
}

// Null: no fragment can become a delta. As with shared extents, none can while versions are being
// deleted, or while the index lacks such changes; nor if the journal has no room for the bases.
std::shared_ptr<BaseSource> Daemon::Impl::find_bases(const SnapshotKey& key, const StagedSlab& slab,
                                                     const std::vector<bool>& left_out) {
  OpenSnapshotState& open = open_snapshots.at(key);
  const EncodePlan& plan = open.encode_plan;
  if (plan == nullptr || !plan->any_deltas) return nullptr;
  if (changing(key.run)) return nullptr;
  const NewestVersions& newest = newest_of_run(key, plan->units->size());
  if (newest.empty()) return nullptr;
  VersionLookups lookups(history.catalog(), key.run, newest);
  std::vector<BaseReader::Base> bases;
  std::set<std::pair<ckpt::SegmentId, uint64_t>> extents;
  for (size_t i = 0; i < slab.fragments().size(); ++i) {
    const ckpt::ExtentFragment& fragment = slab.fragments()[i];
    const bool written = left_out.empty() || !left_out[i];
    if (!written || !plan->may_be_delta(fragment.unit)) continue;
    const UnitVersion* version = lookups.of(fragment.unit);
    if (version == nullptr) continue;
    const auto places = with_bases(fragment, plan->units->at(fragment.unit), *version);
    if (places.empty() || !hold_version(key, *version, places)) continue;
    for (const FragmentPlace& place : places) {
      note_base(open, {.unit = fragment.unit, .offset = place.offset}, *place.base);
      bases.push_back({fragment.unit, base_of(place)});
      extents.insert({place.base->segment, place.base->extent_offset});
    }
  }
  // Bases that could not be looked up are left out: their pieces are stored whole.
  if (bases.empty() || !history.catalog().health().ok()) return nullptr;
  const uint64_t record_bytes =
      ckpt::encoded_bytes({.bases = bases.size(), .shared_extents = extents.size()});
  if (!persist->try_reserve(key, 0, record_bytes)) return nullptr;
  return base_reader->of_slab(std::move(bases), extents_at(key, extents));
}

}  // namespace ckptd
