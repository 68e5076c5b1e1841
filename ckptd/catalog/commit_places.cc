#include "ckptd/catalog/commit_places.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "formats/codec.h"

namespace ckptd {

namespace fb = ckpt::fb;

FragmentPlace base_of(const FragmentPlace& delta) {
  const BasePlace& base = delta.base.value();
  return {.offset = delta.offset,
          .length = delta.length,
          .crc32c = base.crc32c,
          .codec = base.codec,
          .segment = base.segment,
          .extent_offset = base.extent_offset,
          .payload_offset = base.payload_offset,
          .encoded_crc32c = base.encoded_crc32c,
          .encoded_bytes = base.encoded_bytes,
          .written_by = base.written_by};
}

uint32_t unit_crc32c(const std::vector<FragmentPlace>& places) {
  uint32_t crc = 0;
  for (const FragmentPlace& place : places) {
    crc = ckpt::base::crc32c_combine(crc, place.crc32c, place.length);
  }
  return crc;
}

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

uint32_t leading_units(const CommitInfo& info) {
  uint32_t count = 0;
  while (count < info.units.size() && info.units[count] == count) ++count;
  return info.full ? count : 0;
}

namespace {

template <typename... Args>
ckpt::Error wrong(fmt::format_string<Args...> format, Args&&... args) {
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, format, std::forward<Args>(args)...);
}

// The record defines a base as the same range of the same unit. This function checks that the base
// is no delta, and belongs to an earlier commit. So no chain of bases has to be followed.
Result<BasePlace> place_of_base(const fb::CommittedT& commit, const fb::Fragment& fragment,
                                const fb::Base& base) {
  if (base.extent() >= commit.extents.size()) {
    return wrong("unknown extent number {} of a base", base.extent());
  }
  const fb::ExtentT& extent = *commit.extents[base.extent()];
  if (!ckpt::is_shared(extent)) return wrong("its base is of the same commit");
  if (ckpt::is_delta(base.codec())) return wrong("its base is a delta itself");
  if (base.deltas() == 0) return wrong("it is delta number 0 to its base");
  const Status possible = ckpt::check_encoding(base.codec(), fragment.length(),
                                               base.encoded_bytes(), base.encoded_crc32c());
  if (!possible.ok()) return wrong("its base: {}", possible.error().message);
  const uint64_t stored = base.codec() == 0 ? fragment.length() : base.encoded_bytes();
  if (!ckpt::base::range_fits(base.payload_offset(), stored, extent.payload_bytes)) {
    return wrong("its base lies outside its extent's payload");
  }
  return BasePlace{.crc32c = base.crc32c(),
                   .codec = base.codec(),
                   .segment = extent.segment,
                   .extent_offset = extent.offset,
                   .payload_offset = extent.offset + extent.header_bytes + base.payload_offset(),
                   .encoded_crc32c = base.encoded_crc32c(),
                   .encoded_bytes = base.encoded_bytes(),
                   .written_by = {extent.lineage, extent.step},
                   .deltas = base.deltas()};
}

}  // namespace

Result<FragmentPlace> place_of(const fb::CommittedT& commit, const fb::Fragment& fragment,
                               const fb::Encoded& encoding, const std::optional<fb::Base>& base) {
  if (fragment.extent() >= commit.extents.size()) {
    return wrong("unknown extent number {}", fragment.extent());
  }
  const fb::ExtentT& extent = *commit.extents[fragment.extent()];
  const Status possible = ckpt::check_encoding(fragment.codec(), fragment.length(),
                                               encoding.bytes(), encoding.crc32c());
  if (!possible.ok()) return wrong("{}", possible.error().message);
  if (ckpt::is_delta(fragment.codec()) != base.has_value()) {
    return wrong("{}", base ? "a base of what is no delta" : "a delta without a base");
  }
  FragmentPlace place{
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
    return wrong("fragment outside its extent's payload");
  }
  if (base) {
    CKPT_ASSIGN(place.base, place_of_base(commit, fragment, *base));
  }
  return place;
}

Result<PlacesByUnit> places_of_fragments(const fb::CommittedT& commit,
                                         const std::vector<ckpt::UnitSpec>& specs) {
  PlacesByUnit units;
  ckpt::EncodedFragments encoded(commit.encoded);
  ckpt::BasesOfFragments bases(commit.bases);
  for (const fb::Fragment& fragment : commit.fragments) {
    const fb::Encoded encoding = encoded.next().value_or(fb::Encoded());
    const std::optional<fb::Base> base = bases.next();
    if (fragment.unit() >= specs.size()) {
      return contradiction("step {}: unknown unit number {}", commit.step, fragment.unit());
    }
    auto place = place_of(commit, fragment, encoding, base);
    if (!place.ok()) {
      return contradiction("step {} unit {}: {}", commit.step, specs[fragment.unit()].name,
                           place.error().message);
    }
    units[fragment.unit()].push_back(std::move(place).value());
  }
  if (!encoded.all_taken()) {
    return contradiction("step {}: encoded bytes of a fragment that is not there", commit.step);
  }
  if (!bases.all_taken()) {
    return contradiction("step {}: a base of a fragment that is not there", commit.step);
  }
  for (auto& [unit, places] : units) {
    std::sort(places.begin(), places.end(), [](const FragmentPlace& a, const FragmentPlace& b) {
      return std::pair(a.offset, a.length) < std::pair(b.offset, b.length);
    });
  }
  return units;
}

Result<PlacesByUnit> places_by_unit(const fb::CommittedT& commit,
                                    const std::vector<ckpt::UnitSpec>& specs) {
  CKPT_ASSIGN(PlacesByUnit units, places_of_fragments(commit, specs));
  for (const auto& [unit, places] : units) CKPT_TRY(check_coverage(specs[unit], places));
  return units;
}

}  // namespace ckptd
