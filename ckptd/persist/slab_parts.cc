#include "ckptd/persist/slab_parts.h"

#include <algorithm>

#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace ckptd {
namespace {

uint64_t first_block(const ckpt::ExtentFragment& fragment) {
  return fragment.payload_offset / ckpt::kBlockBytes;
}
uint64_t last_block(const ckpt::ExtentFragment& fragment) {
  return (fragment.payload_offset + fragment.length - 1) / ckpt::kBlockBytes;
}

// Writes short stretches after all. Their neighbors are written, and share no block with them.
void take_back_short_ones(const std::vector<ckpt::ExtentFragment>& fragments, uint64_t bytes_min,
                          std::vector<bool>& left_out) {
  const auto end = left_out.end();
  for (auto from = std::find(left_out.begin(), end, true); from != end;) {
    const auto to = std::find(from, end, false);
    const auto first = fragments.begin() + (from - left_out.begin());
    const auto last = fragments.begin() + (to - left_out.begin()) - 1;
    const uint64_t bytes = last->payload_offset + last->length - first->payload_offset;
    if (bytes < bytes_min) std::fill(from, to, false);
    from = std::find(to, end, true);
  }
}

}  // namespace

// A written fragment affects only its neighbors: one pass forwards and one backwards is enough.
std::vector<bool> left_out_of_slab(const std::vector<ckpt::ExtentFragment>& fragments,
                                   const std::vector<bool>& elsewhere, uint64_t bytes_min) {
  CKPT_ASSERT(fragments.size() == elsewhere.size());
  std::vector<bool> left_out = elsewhere;
  for (size_t i = 1; i < fragments.size(); ++i) {
    const bool touches = last_block(fragments[i - 1]) == first_block(fragments[i]);
    if (touches && !left_out[i - 1]) left_out[i] = false;
  }
  for (size_t i = fragments.size(); i-- > 1;) {
    const bool touches = last_block(fragments[i - 1]) == first_block(fragments[i]);
    if (touches && !left_out[i]) left_out[i - 1] = false;
  }
  take_back_short_ones(fragments, bytes_min, left_out);
  return left_out;
}

SlabParts parts_of_slab(const std::vector<ckpt::ExtentFragment>& fragments,
                        const std::vector<bool>& left_out) {
  CKPT_ASSERT(fragments.size() == left_out.size());
  SlabParts result;
  uint64_t written = 0;  // bytes of the parts so far
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (left_out[i]) continue;
    ckpt::ExtentFragment fragment = fragments[i];
    const uint64_t begin = first_block(fragment) * ckpt::kBlockBytes;
    const uint64_t end = (last_block(fragment) + 1) * ckpt::kBlockBytes;
    auto* last = result.parts.empty() ? nullptr : &result.parts.back();
    if (last != nullptr && begin <= last->offset + last->bytes) {
      const uint64_t grown = end - last->offset;
      written += grown - last->bytes;
      last->bytes = grown;
    } else {
      result.parts.push_back({begin, end - begin});
      last = &result.parts.back();
      written += last->bytes;
    }
    const uint64_t part_begin = written - last->bytes;
    fragment.payload_offset = part_begin + (fragment.payload_offset - last->offset);
    result.payload_bytes = fragment.payload_offset + fragment.length;
    result.fragments.push_back(fragment);
  }
  return result;
}

}  // namespace ckptd
