// Norms of floating-point tensors, whatever their type: what `diff` measures a change by. Pure.
#pragma once

#include <optional>

#include "formats/base/bytes.h"
#include "formats/dtype.h"

namespace ckptctl {

// Sums in double over everything added; tensors of types without a norm are left out.
class ChangeNorm {
 public:
  static bool measures(ckpt::DType dtype);
  // Elements [i] of both sides, of the same type and count.
  void add(ckpt::DType dtype, ckpt::ByteView from, ckpt::ByteView to);
  // ||to - from|| / ||from||; nullopt if nothing was measured, or `from` is all zero and `to` not.
  std::optional<double> relative() const;

 private:
  bool measured_ = false;
  double change_squared_ = 0;
  double from_squared_ = 0;
};

}  // namespace ckptctl
