// SlabParts: the parts of a slab to write if some of its fragments are already on disk. Pure.
#pragma once

#include <vector>

#include "formats/segment.h"

namespace ckptd {

// Fragments that need not be written: those in `elsewhere`, except any that shares a block with a
// written one, and stretches shorter than `bytes_min` in total. `fragments`: of a slab, ascending
// in its payload; `elsewhere` has one flag per fragment.
std::vector<bool> left_out_of_slab(const std::vector<ckpt::ExtentFragment>& fragments,
                                   const std::vector<bool>& elsewhere, uint64_t bytes_min);

struct SlabParts {
  struct Part {
    uint64_t offset = 0;  // in the slab; whole blocks
    uint64_t bytes = 0;
    bool operator==(const Part&) const = default;
  };
  // Ascending and disjoint. Concatenated, they are the payload of the extent.
  std::vector<Part> parts;
  std::vector<ckpt::ExtentFragment> fragments;  // places in that payload
  uint64_t payload_bytes = 0;                   // before padding
};

// `left_out`: as left_out_of_slab() gives it.
SlabParts parts_of_slab(const std::vector<ckpt::ExtentFragment>& fragments,
                        const std::vector<bool>& left_out);

}  // namespace ckptd
