#include "ckptd/dedup/dedup_plan.h"

#include <set>
#include <tuple>

#include "formats/base/checked.h"

namespace ckptd {
namespace {

using ckpt::base::align_down;
using ckpt::base::align_up;
constexpr uint64_t kBlock = ckpt::kBlockBytes;

// Stored bytes of a fragment, or a header.
struct Stored {
  ckpt::SegmentId segment = 0;
  uint64_t begin = 0;  // in the segment
  uint64_t end = 0;
  std::optional<DedupRead::Part> part;
  size_t extent = 0;  // if there is no part
};

// Splits raw bytes into pieces that fit into a read at any alignment; encoded bytes stay whole.
void add_stored(const FragmentPlace& place, DedupRead::Part part, uint64_t bytes_max,
                std::vector<Stored>& stored) {
  const uint64_t most = place.codec == 0 ? bytes_max - 2 * kBlock : place.stored_bytes();
  for (part.from = 0; part.from < place.stored_bytes(); part.from += part.bytes) {
    part.bytes = std::min(most, place.stored_bytes() - part.from);
    const uint64_t begin = place.payload_offset + part.from;
    stored.push_back({place.segment, begin, begin + part.bytes, part, 0});
  }
}

std::vector<DedupRead> join(std::vector<Stored> stored, const DedupPlanLimits& limits) {
  std::sort(stored.begin(), stored.end(), [](const Stored& a, const Stored& b) {
    return std::tie(a.segment, a.begin) < std::tie(b.segment, b.begin);
  });
  std::vector<DedupRead> reads;
  for (const Stored& one : stored) {
    const uint64_t begin = align_down(one.begin, kBlock);
    const uint64_t end = align_up(one.end, kBlock);
    DedupRead* last = reads.empty() ? nullptr : &reads.back();
    const bool joins = last != nullptr && last->segment == one.segment &&
                       begin <= last->end + limits.gap_bytes_max &&
                       std::max(end, last->end) - last->begin <= limits.read_bytes_max;
    if (!joins) {
      reads.push_back({one.segment, begin, end, {}, {}});
      last = &reads.back();
    }
    last->end = std::max(last->end, end);
    if (one.part) {
      last->parts.push_back(*one.part);
    } else {
      last->extents.push_back(one.extent);
    }
  }
  return reads;
}

std::vector<DedupRead> reads_of(const std::vector<DedupCandidate>& candidates,
                                const std::vector<DedupExtent>& extents,
                                const std::set<size_t>& scattered, const DedupPlanLimits& limits) {
  std::vector<Stored> stored;
  std::set<ExtentBegin> used;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (scattered.contains(i)) continue;
    for (size_t j = 0; j < candidates[i].places.size(); ++j) {
      const FragmentPlace& place = candidates[i].places[j];
      add_stored(place, {.candidate = i, .place = j}, limits.read_bytes_max, stored);
      used.insert({place.segment, place.extent_offset});
      if (!place.base) continue;
      add_stored(base_of(place), {.candidate = i, .place = j, .base = true}, limits.read_bytes_max,
                 stored);
      used.insert({place.base->segment, place.base->extent_offset});
    }
  }
  for (size_t i = 0; i < extents.size(); ++i) {
    const ckpt::ExtentHeader& header = extents[i].expected;
    if (!used.contains({header.segment, header.offset})) continue;
    stored.push_back(
        {header.segment, header.offset, header.offset + extents[i].header_bytes, {}, i});
  }
  return join(std::move(stored), limits);
}

// A short tail in a read of its own does not make its fragment not worthwhile.
bool worth_it(const DedupRead& read, const std::vector<DedupCandidate>& candidates,
              const DedupPlanLimits& limits) {
  uint64_t bytes = 0;
  for (const DedupRead::Part& part : read.parts) {
    bytes += part.of(candidates[part.candidate]).stored_bytes();
  }
  return bytes >= limits.compared_bytes_min;
}

}  // namespace

DedupPlan plan_dedup(const std::vector<DedupCandidate>& candidates,
                     const std::vector<DedupExtent>& extents, const DedupPlanLimits& limits) {
  std::set<size_t> scattered;
  for (const DedupExtent& extent : extents) {
    if (extent.header_bytes <= limits.read_bytes_max) continue;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].lies_in(extent)) scattered.insert(i);
    }
  }
  std::vector<DedupRead> reads = reads_of(candidates, extents, scattered, limits);
  const size_t too_large = scattered.size();
  for (const DedupRead& read : reads) {
    if (read.parts.empty() || worth_it(read, candidates, limits)) continue;
    for (const DedupRead::Part& part : read.parts) scattered.insert(part.candidate);
  }
  if (scattered.size() > too_large) reads = reads_of(candidates, extents, scattered, limits);
  return {std::move(reads), {scattered.begin(), scattered.end()}};
}

}  // namespace ckptd
