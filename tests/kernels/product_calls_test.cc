// When products of several experts go to cuBLAS one by one.
#include "kernels/cuda/product_calls.h"

#include <gtest/gtest.h>

namespace ckpt::kernels {
namespace {

TEST(ProductCalls, SmallProductsGoTogether) {
  EXPECT_FALSE(are_faster_one_by_one(1, 1));
  EXPECT_FALSE(are_faster_one_by_one(64, 64 * 128.0 * 1024 * 1024));
}

TEST(ProductCalls, LargeProductsGoOneByOne) {
  EXPECT_TRUE(are_faster_one_by_one(8, 8 * 1920.0 * 5632 * 2048));
  EXPECT_TRUE(are_faster_one_by_one(1, kOneByOneMultiplications));
}

// One large product among many small ones does not make each of them a call.
TEST(ProductCalls, MeanSizeDecides) {
  EXPECT_FALSE(are_faster_one_by_one(64, 8 * kOneByOneMultiplications));
}

}  // namespace
}  // namespace ckpt::kernels
