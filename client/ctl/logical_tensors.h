// The tensors of a run as in a model's files: joins blocks (block_names.h), then the slices of
// stacked tensors, which are spread over the units of its experts. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/original_files.h"
#include "client/ctl/view.h"

namespace ckptctl {

struct LogicalTensor {
  std::string name;
  ckpt::DType dtype = ckpt::DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  // Every byte of the tensor once, ascending by `destination`, which counts from the tensor's
  // begin. `tag` is left 0. A block is one piece, however many rows it has.
  std::vector<WantedBytes> pieces;
  std::optional<uint32_t> layer;  // of the unit; nothing for joined slices
  std::optional<uint32_t> expert;
};

// A tensor of a unit, for join_tensors.
struct UnitTensor {
  const ViewUnit* unit = nullptr;
  ckpt::TensorSpec tensor;
};

// In the order of `tensors`; a joined tensor replaces the first of its parts. Fails if two units
// have a tensor of the same name.
//
// Blocks with the same base and dimension are joined if there are at least two and they follow each
// other from index 0, alike in dtype and all other extents; if no tensor is named like the base;
// and if no other dimension of the base is cut. All are of one expert, or of none. Blocks that
// share bytes with the next one (F4, F6), or that an imported file has under their own names, stay
// apart.
//
// Slices, whole or in blocks, are joined if all exist, alike in dtype and shape, and no tensor has
// the name of their tensor: if `originals` has that tensor, or if slice i is in a unit of expert i.
Result<std::vector<LogicalTensor>> join_tensors(const std::vector<UnitTensor>& tensors,
                                                const OriginalFiles& originals);

}  // namespace ckptctl
