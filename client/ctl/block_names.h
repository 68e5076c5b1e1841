// Names of blocks: parts of a tensor that is cut along a later dimension than its first. Pure.
//
// A rank that holds columns of a matrix would hold one short run of bytes per row. Stored as a
// block, a row-major tensor of its own, its part is one range of the unit. A block is named like
// the Python slice that makes it: "w[:,0:3584]" are the columns 0 to 3583 of w.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckptctl {

struct BlockName {
  // Name of the cut tensor, or of its slice (expert_names.h): "w" of "w[:,0:2]", "w[7]" of
  // "w[7][:,0:2]".
  std::string_view base;
  size_t dim = 0;  // dimension of the base that is cut: 1 or later
  uint64_t start = 0;
  uint64_t stop = 0;  // above start, below 2^63
};

std::string block_name(std::string_view base, size_t dim, uint64_t start, uint64_t stop);
// Nothing: not a name made by block_name. The view points into `name`.
std::optional<BlockName> parse_block_name(std::string_view name);

}  // namespace ckptctl
