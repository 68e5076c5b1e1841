#include "ckptd/catalog/commit_places.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "formats/codec.h"

namespace ckptd {

namespace fb = ckpt::fb;

uint32_t unit_crc32c(const std::vector<FragmentPlace>& places) {
  uint32_t crc = 0;
  for (const FragmentPlace& place : places) {
    crc = ckpt::base::crc32c_combine(crc, place.crc32c, place.length);
  }
  return crc;
}

namespace {

Status check_coverage(const ckpt::UnitSpec& spec, const std::vector<FragmentPlace>& places) {
  uint64_t covered = 0;
  for (const FragmentPlace& place : places) {
    if (place.length == 0 || place.offset != covered) {
      return contradiction("unit {}: fragments do not meet at byte {}", spec.name,
                           std::min(covered, place.offset));
    }
    const auto end = ckpt::base::checked_add(place.offset, place.length);
    if (!end || *end > spec.bytes) {
      return contradiction("unit {}: fragment ends outside its {} bytes", spec.name, spec.bytes);
    }
    covered = *end;
  }
  if (covered == spec.bytes) return {};
  return contradiction("unit {}: no fragment covers bytes [{}, {})", spec.name, covered,
                       spec.bytes);
}

}  // namespace

Result<PlacesByUnit> places_by_unit(const fb::CommittedT& commit,
                                    const std::vector<ckpt::UnitSpec>& specs) {
  PlacesByUnit units;
  ckpt::EncodedFragments encoded(commit.encoded);
  for (const fb::Fragment& fragment : commit.fragments) {
    const fb::Encoded encoding = encoded.next();
    if (fragment.unit() >= specs.size()) {
      return contradiction("step {}: unknown unit number {}", commit.step, fragment.unit());
    }
    if (fragment.extent() >= commit.extents.size()) {
      return contradiction("step {} unit {}: unknown extent number {}", commit.step,
                           specs[fragment.unit()].name, fragment.extent());
    }
    const fb::ExtentT& extent = *commit.extents[fragment.extent()];
    const Status possible = ckpt::check_encoding(fragment.codec(), fragment.length(),
                                                 encoding.bytes(), encoding.crc32c());
    if (!possible.ok()) {
      return contradiction("step {} unit {}: {}", commit.step, specs[fragment.unit()].name,
                           possible.error().message);
    }
    const FragmentPlace place{
        .offset = fragment.offset(),
        .length = fragment.length(),
        .crc32c = fragment.crc32c(),
        .codec = fragment.codec(),
        .segment = extent.segment,
        .extent_offset = extent.offset,
        .payload_offset = extent.offset + extent.header_bytes + fragment.payload_offset(),
        .encoded_crc32c = encoding.crc32c(),
        .encoded_bytes = encoding.bytes(),
        .written_by = {extent.lineage, extent.step}};
    if (!ckpt::base::range_fits(fragment.payload_offset(), place.stored_bytes(),
                                extent.payload_bytes)) {
      return contradiction("step {} unit {}: fragment outside its extent's payload", commit.step,
                           specs[fragment.unit()].name);
    }
    units[fragment.unit()].push_back(place);
  }
  if (!encoded.all_taken()) {
    return contradiction("step {}: encoded bytes of a fragment that is not there", commit.step);
  }
  for (auto& [unit, places] : units) {
    std::sort(places.begin(), places.end(), [](const FragmentPlace& a, const FragmentPlace& b) {
      return std::pair(a.offset, a.length) < std::pair(b.offset, b.length);
    });
    CKPT_TRY(check_coverage(specs[unit], places));
  }
  return units;
}

}  // namespace ckptd
