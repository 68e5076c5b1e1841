// SlabParts: what of a slab is written where some of its fragments are on the disk already. Pure.
#pragma once

#include <vector>

#include "formats/segment.h"

namespace ckptd {

// Which of the fragments need not be written: those in `elsewhere`, but for any that shares a block
// with one that is written, and stretches of them that are together shorter than `bytes_min`.
// `fragments`: of a slab, ascending in its payload; as many flags.
std::vector<bool> left_out_of_slab(const std::vector<ckpt::ExtentFragment>& fragments,
                                   const std::vector<bool>& elsewhere, uint64_t bytes_min);

struct SlabParts {
  struct Part {
    uint64_t offset = 0;  // in the slab; whole blocks
    uint64_t bytes = 0;
    bool operator==(const Part&) const = default;
  };
  // Ascending and apart. One after the other they are the payload of the extent.
  std::vector<Part> parts;
  std::vector<ckpt::ExtentFragment> fragments;  // as they lie in that payload
  uint64_t payload_bytes = 0;                   // before padding
};

// `left_out`: as left_out_of_slab() gives it.
SlabParts parts_of_slab(const std::vector<ckpt::ExtentFragment>& fragments,
                        const std::vector<bool>& left_out);

}  // namespace ckptd
