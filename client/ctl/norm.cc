#include "client/ctl/norm.h"

#include <cmath>

#include "formats/base/assert.h"

namespace ckptctl {
namespace {

using ckpt::ByteView;
using ckpt::DType;

double from_bf16(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

// IEEE 754 binary16.
double from_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0x1f) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double element(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF64:
      return ckpt::base::load<double>(at);
    case DType::kF32:
      return static_cast<double>(ckpt::base::load<float>(at));
    case DType::kBF16:
      return from_bf16(ckpt::base::load<uint16_t>(at));
    default:
      return from_f16(ckpt::base::load<uint16_t>(at));
  }
}

}  // namespace

bool ChangeNorm::measures(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

void ChangeNorm::add(DType dtype, ByteView from, ByteView to) {
  CKPT_ASSERT(measures(dtype) && from.size() == to.size());
  const uint64_t bytes = ckpt::dtype_bytes(dtype);
  for (uint64_t at = 0; at + bytes <= from.size(); at += bytes) {
    const double before = element(dtype, from.data() + at);
    const double change = element(dtype, to.data() + at) - before;
    from_squared_ += before * before;
    change_squared_ += change * change;
  }
  measured_ = true;
}

std::optional<double> ChangeNorm::relative() const {
  if (!no_norm_reason().empty()) return std::nullopt;
  return change_squared_ == 0 ? 0 : std::sqrt(change_squared_ / from_squared_);
}

std::string_view ChangeNorm::no_norm_reason() const {
  if (!measured_) return "it has no floating-point tensor that can be compared";
  // The sum of squares is finite unless an element is not, or its square exceeds a double.
  if (!std::isfinite(change_squared_) || !std::isfinite(from_squared_)) {
    return "it holds NaN, infinity or numbers too large to square";
  }
  if (change_squared_ != 0 && from_squared_ == 0) return "it was all zero before";
  return {};
}

}  // namespace ckptctl
