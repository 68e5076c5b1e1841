#include "ckptd/same/same_plan.h"

#include <algorithm>
#include <tuple>

#include "formats/base/checked.h"

namespace ckptd {
namespace {

using ckpt::base::align_down;
using ckpt::base::align_up;
constexpr uint64_t kBlock = ckpt::kBlockBytes;

struct Stored {
  ckpt::SegmentId segment = 0;
  uint64_t begin = 0;  // in the segment
  SameRead::Part part;
};

// Raw ones in pieces that a read has room for, whatever their alignment; encoded ones whole.
void add_stored(const FragmentPlace& place, SameRead::Part part, uint64_t bytes_max,
                std::vector<Stored>& stored) {
  const uint64_t most = place.codec == 0 ? bytes_max - 2 * kBlock : place.stored_bytes();
  for (part.from = 0; part.from < place.stored_bytes(); part.from += part.bytes) {
    part.bytes = std::min(most, place.stored_bytes() - part.from);
    stored.push_back({place.segment, place.payload_offset + part.from, part});
  }
}

}  // namespace

std::vector<SameRead> plan_same_reads(const std::vector<SameCandidate>& candidates,
                                      uint64_t bytes_max) {
  std::vector<Stored> stored;
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (size_t j = 0; j < candidates[i].places.size(); ++j) {
      add_stored(candidates[i].places[j], {.candidate = i, .place = j}, bytes_max, stored);
    }
  }
  std::sort(stored.begin(), stored.end(), [](const Stored& a, const Stored& b) {
    return std::tie(a.segment, a.begin) < std::tie(b.segment, b.begin);
  });
  std::vector<SameRead> reads;
  for (const Stored& one : stored) {
    const uint64_t begin = align_down(one.begin, kBlock);
    const uint64_t end = align_up(one.begin + one.part.bytes, kBlock);
    SameRead* last = reads.empty() ? nullptr : &reads.back();
    const bool joins = last != nullptr && last->segment == one.segment && begin <= last->end &&
                       std::max(end, last->end) - last->begin <= bytes_max;
    if (!joins) {
      reads.push_back({one.segment, begin, end, {}});
      last = &reads.back();
    }
    last->end = std::max(last->end, end);
    last->parts.push_back(one.part);
  }
  return reads;
}

}  // namespace ckptd
