// The tensors of a run as in a model's files: joins the slices of stacked tensors, which are spread
// over the units of its experts. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/original_files.h"
#include "client/ctl/view.h"

namespace ckptctl {

struct LogicalTensor {
  std::string unit;  // unit of the tensor, or of its first slice
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

// In the order of `tensors`. Slices are joined if `originals` has their tensor and all slices
// exist; the joined tensor replaces the first slice. Fails if two units have a tensor of the same
// name.
Result<std::vector<LogicalTensor>> join_slices(const std::vector<UnitTensor>& tensors,
                                               const OriginalFiles& originals);

}  // namespace ckptctl
