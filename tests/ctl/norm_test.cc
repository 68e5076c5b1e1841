#include "client/ctl/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ckptctl {
namespace {

using ckpt::DType;

template <typename T>
ckpt::ByteView bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(ChangeNorm, IsRelativeToNormOfFirst) {
  ChangeNorm norm;
  norm.add(DType::kF32, bytes_of<float>({3, 4}), bytes_of<float>({3, 5}));
  EXPECT_DOUBLE_EQ(norm.relative().value(), 1.0 / 5);
  norm.add(DType::kF64, bytes_of<double>({12}), bytes_of<double>({12}));  // adds up over tensors
  EXPECT_DOUBLE_EQ(norm.relative().value(), 1.0 / 13);
}

TEST(ChangeNorm, ReadsBothHalfTypes) {
  ChangeNorm bf16;  // 1.0 -> 1.5
  bf16.add(DType::kBF16, bytes_of<uint16_t>({0x3f80}), bytes_of<uint16_t>({0x3fc0}));
  EXPECT_DOUBLE_EQ(bf16.relative().value(), 0.5);
  ChangeNorm f16;  // 1.0 -> -1.0, largest, smallest subnormal, zero
  f16.add(DType::kF16, bytes_of<uint16_t>({0x3c00}), bytes_of<uint16_t>({0xbc00}));
  EXPECT_DOUBLE_EQ(f16.relative().value(), 2.0);
  ChangeNorm largest;  // 65504 -> 0
  largest.add(DType::kF16, bytes_of<uint16_t>({0x7bff}), bytes_of<uint16_t>({0}));
  EXPECT_DOUBLE_EQ(largest.relative().value(), 1.0);
  ChangeNorm smallest;  // 2^-24 -> 2^-23
  smallest.add(DType::kF16, bytes_of<uint16_t>({1}), bytes_of<uint16_t>({2}));
  EXPECT_DOUBLE_EQ(smallest.relative().value(), 1.0);
}

TEST(ChangeNorm, HasNoValueWithoutMeasurableTensors) {
  EXPECT_FALSE(ChangeNorm().relative());
  EXPECT_FALSE(ChangeNorm::measures(DType::kI64));
  EXPECT_FALSE(ChangeNorm::measures(DType::kF8E4M3));
  ChangeNorm from_zero;
  from_zero.add(DType::kF32, bytes_of<float>({0}), bytes_of<float>({1}));
  EXPECT_FALSE(from_zero.relative());
  EXPECT_EQ(from_zero.no_norm_reason(), "it was all zero before");
  ChangeNorm unchanged;
  unchanged.add(DType::kF32, bytes_of<float>({0}), bytes_of<float>({0}));
  EXPECT_EQ(unchanged.relative(), 0.0);
  EXPECT_EQ(unchanged.no_norm_reason(), "");
}

TEST(ChangeNorm, NonFiniteNumbersHaveNoNorm) {
  for (const float odd : {std::nanf(""), HUGE_VALF}) {
    for (const bool before : {true, false}) {
      ChangeNorm norm;
      norm.add(DType::kF32, bytes_of<float>({before ? odd : 1}),
               bytes_of<float>({before ? 1 : odd}));
      EXPECT_FALSE(norm.relative()) << odd;
      EXPECT_EQ(norm.no_norm_reason(), "it holds NaN, infinity or numbers too large to square");
    }
  }
}

}  // namespace
}  // namespace ckptctl
