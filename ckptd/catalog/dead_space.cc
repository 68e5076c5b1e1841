#include "ckptd/catalog/dead_space.h"

#include <algorithm>
#include <set>

#include "formats/base/checked.h"

namespace ckptd {
namespace {

using ckpt::base::align_down;
using ckpt::base::align_up;
using ckpt::fb::ExtentT;
constexpr uint64_t kBlock = ckpt::kBlockBytes;

// A sum that overflows comes from an invalid record: clamp to the largest aligned offset.
uint64_t end_of(uint64_t offset, uint64_t bytes) {
  return ckpt::base::checked_add(offset, bytes).value_or(align_down(~uint64_t{0}, kBlock));
}

void add(SpaceRanges& ranges, ckpt::SegmentId segment, uint64_t offset, uint64_t end) {
  const uint64_t begin = align_down(offset, kBlock);
  ranges.push_back({segment, begin, align_up(end, kBlock) - begin});
}

using ExtentPlaces = std::set<ExtentBegin>;

ExtentPlaces places_of_extents(const std::vector<FragmentPlace>& places) {
  ExtentPlaces extents;
  for (const FragmentPlace& place : places) extents.emplace(place.segment, place.extent_offset);
  return extents;
}

}  // namespace

SpaceRanges merged(SpaceRanges ranges) {
  std::sort(ranges.begin(), ranges.end());
  SpaceRanges result;
  for (const SpaceRange& range : ranges) {
    SpaceRange* last = result.empty() ? nullptr : &result.back();
    if (last != nullptr && last->segment == range.segment &&
        range.offset <= last->offset + last->bytes) {
      const uint64_t end = std::max(last->offset + last->bytes, range.offset + range.bytes);
      last->bytes = end - last->offset;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

SpaceRanges whole_extents(const std::vector<ExtentT>& extents) {
  SpaceRanges ranges;
  ranges.reserve(extents.size());
  for (const ExtentT& extent : extents) {
    const uint64_t payload = end_of(extent.offset, extent.header_bytes);
    add(ranges, extent.segment, extent.offset, end_of(payload, extent.payload_bytes));
  }
  return merged(std::move(ranges));
}

std::vector<ExtentT> extents_of(const std::vector<ExtentT>& extents,
                                const std::vector<FragmentPlace>& places) {
  const ExtentPlaces used = places_of_extents(places);
  std::vector<ExtentT> result;
  for (const ExtentT& extent : extents) {
    if (used.contains({extent.segment, extent.offset})) result.push_back(extent);
  }
  return result;
}

SpaceRanges blocks_of(const std::vector<ExtentT>& extents,
                      const std::vector<FragmentPlace>& places) {
  SpaceRanges ranges;
  ranges.reserve(extents.size() + places.size());
  for (const ExtentT& extent : extents_of(extents, places)) {
    add(ranges, extent.segment, extent.offset, end_of(extent.offset, extent.header_bytes));
  }
  for (const FragmentPlace& place : places) {
    add(ranges, place.segment, place.payload_offset,
        end_of(place.payload_offset, place.stored_bytes()));
  }
  return merged(std::move(ranges));
}

SpaceRanges without(const SpaceRanges& ranges, const SpaceRanges& others) {
  SpaceRanges result;
  auto other = others.begin();
  for (const SpaceRange& range : ranges) {
    uint64_t begin = range.offset;
    const uint64_t end = range.offset + range.bytes;
    while (other != others.end() &&
           (other->segment < range.segment ||
            (other->segment == range.segment && other->offset + other->bytes <= begin))) {
      ++other;
    }
    // This range of `others` may reach beyond `range` and touch the next range, too.
    for (auto next = other; next != others.end() && next->segment == range.segment &&
                            next->offset < end && begin < end;
         ++next) {
      if (begin < next->offset) result.push_back({range.segment, begin, next->offset - begin});
      begin = std::max(begin, next->offset + next->bytes);
    }
    if (begin < end) result.push_back({range.segment, begin, end - begin});
  }
  return result;
}

SpaceRanges within(const SpaceRanges& ranges, const SpaceRange& range) {
  const uint64_t range_end = range.offset + range.bytes;
  SpaceRanges result;
  auto next = std::ranges::upper_bound(ranges, range);
  if (next != ranges.begin()) --next;  // the previous range may reach into `range`
  for (; next != ranges.end() && next->segment <= range.segment; ++next) {
    if (next->segment < range.segment) continue;
    if (next->offset >= range_end) break;
    const uint64_t begin = std::max(next->offset, range.offset);
    const uint64_t end = std::min(next->offset + next->bytes, range_end);
    if (begin < end) result.push_back({range.segment, begin, end - begin});
  }
  return result;
}

}  // namespace ckptd
