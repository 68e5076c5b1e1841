// Norms of floating-point tensors of any type, by which `diff` measures a change. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "formats/base/bytes.h"
#include "formats/dtype.h"

namespace ckptctl {

// Sums in double over all added tensors; leaves out tensors of types without a norm.
class ChangeNorm {
 public:
  static bool measures(ckpt::DType dtype);
  // Elements [i] of both sides, of the same type and count.
  void add(ckpt::DType dtype, ckpt::ByteView from, ckpt::ByteView to);
  // ||to - from|| / ||from||; nullopt if there is no such number: no_norm_reason() says why.
  std::optional<double> relative() const;
  // Why relative() is nullopt; empty if it is a number.
  std::string_view no_norm_reason() const;

 private:
  bool measured_ = false;
  double change_squared_ = 0;
  double from_squared_ = 0;
};

}  // namespace ckptctl
