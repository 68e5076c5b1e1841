// SlabLayout: allocates the places of fragments in a slab. Pure.
//
//   slab := fragment | gap | fragment | ... ; gaps are zero
//
// A fragment of 64 KiB or more starts on a 4 KiB block, so that its reads are aligned; smaller
// ones are packed to cache lines. A fragment that does not fit is continued in the next slab.
#pragma once

#include <optional>

#include "formats/arena.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckpt::lib {

inline constexpr uint64_t kSmallFragmentAlign = 64;
// The daemon bounds the fragment table of a slab.
inline constexpr size_t kFragmentsPerSlabMax = 1u << 16;

class SlabLayout {
 public:
  explicit SlabLayout(uint64_t slab_bytes) : slab_bytes_(slab_bytes) {}

  struct Place {
    uint64_t offset = 0;  // in the slab
    uint64_t length = 0;  // how much of the fragment fits there
  };
  // The place for the next `remaining` bytes of a fragment; nullopt if the slab is full. The caller
  // fills any part of it, reports that with fill(), and zeroes the gap before it.
  std::optional<Place> place(uint64_t remaining) const {
    if (fragments_ >= kFragmentsPerSlabMax) return std::nullopt;
    const uint64_t align = remaining >= kAlignedFragmentBytes ? kBlockBytes : kSmallFragmentAlign;
    const uint64_t offset = base::align_up(filled_, align);
    if (offset >= slab_bytes_) return std::nullopt;
    const uint64_t rest = slab_bytes_ - offset;
    // A small remainder at the end of a slab would cost every restore a read of its own.
    if (rest < remaining && rest < kBlockBytes) return std::nullopt;
    return Place{offset, remaining < rest ? remaining : rest};
  }
  void fill(uint64_t offset, uint64_t length) {
    filled_ = offset + length;
    ++fragments_;
  }
  // Adds bytes to the fragment that was filled last.
  void extend(uint64_t length) { filled_ += length; }

  uint64_t filled() const { return filled_; }
  uint64_t rest() const { return slab_bytes_ - filled_; }

 private:
  uint64_t slab_bytes_;
  uint64_t filled_ = 0;
  size_t fragments_ = 0;
};

// Number of slabs for fragments of these lengths, written whole and in this order.
template <typename Lengths>
uint32_t slabs_needed(const Lengths& lengths, uint64_t slab_bytes) {
  uint32_t slabs = 0;
  std::optional<SlabLayout> layout;
  for (uint64_t remaining : lengths) {
    while (remaining > 0) {
      const auto place = layout ? layout->place(remaining) : std::nullopt;
      if (!place) {
        layout.emplace(slab_bytes);
        ++slabs;
        continue;
      }
      layout->fill(place->offset, place->length);
      remaining -= place->length;
    }
  }
  return slabs;
}

// Upper bound of that number for any order of whole fragments. Each slab may lose less than a block
// at its end, each fragment less than its alignment before its first byte.
template <typename Lengths>
uint64_t slabs_at_most(const Lengths& lengths, uint64_t slab_bytes) {
  uint64_t bytes = 0;
  for (const uint64_t length : lengths) {
    bytes += length + (length >= kAlignedFragmentBytes ? kBlockBytes : kSmallFragmentAlign) - 1;
  }
  const uint64_t usable = slab_bytes - (kBlockBytes - 1);
  return (bytes + usable - 1) / usable + lengths.size() / kFragmentsPerSlabMax;
}

}  // namespace ckpt::lib
