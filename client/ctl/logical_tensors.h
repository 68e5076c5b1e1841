// The tensors of a run as a model's files have them: slices of a stacked tensor, which are spread
// over the units of its experts, are one tensor again. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/original_files.h"
#include "client/ctl/view.h"

namespace ckptctl {

struct LogicalTensor {
  std::string unit;  // the name of the unit that has it, or its first slice
  std::string name;
  ckpt::DType dtype = ckpt::DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  std::vector<WantedBytes> pieces;  // in order; `destination` and `tag` are left 0
};

// A tensor of a unit, for join_slices.
struct UnitTensor {
  const ViewUnit* unit = nullptr;
  ckpt::TensorSpec tensor;
};

// In the order of `tensors`. Slices are joined if all of a tensor that `originals` has are there;
// the joined tensor takes the place of the first one. Fails if two units have a tensor of the same
// name.
Result<std::vector<LogicalTensor>> join_slices(const std::vector<UnitTensor>& tensors,
                                               const OriginalFiles& originals);

}  // namespace ckptctl
