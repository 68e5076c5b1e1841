#include "client/ctl/block_names.h"

#include <gtest/gtest.h>

#include "client/ctl/expert_names.h"

namespace ckptctl {
namespace {

TEST(BlockNames, RoundTrip) {
  EXPECT_EQ(block_name("w", 1, 0, 3584), "w[:,0:3584]");
  EXPECT_EQ(block_name("w[7]", 2, 64, 128), "w[7][:,:,64:128]");
  for (const char* base : {"w", "", "w[7]", "a[:,0:2]", "x]", "["}) {
    for (const size_t dim : {1, 2, 63, 1000}) {
      const std::string name = block_name(base, dim, 5, 9223372036854775807);
      const auto block = parse_block_name(name);
      ASSERT_TRUE(block) << base;
      EXPECT_EQ(block->base, base);
      EXPECT_EQ(block->dim, dim);
      EXPECT_EQ(block->start, 5u);
      EXPECT_EQ(block->stop, 9223372036854775807u);
      EXPECT_FALSE(parse_slice_name(name)) << "a block is no slice";
    }
  }
  EXPECT_FALSE(parse_block_name(slice_name("w", 7))) << "a slice is no block";
}

TEST(BlockNames, OtherNamesAreNotBlocks) {
  for (const char* name : {"",
                           "w",
                           "[",
                           "]",
                           "[]",
                           "w[:]",
                           "w[:,]",
                           "w[0:2]",
                           "w[:,0]",
                           "w[:,:]",
                           "w[:,:2]",
                           "w[:,0:]",
                           "w[:,2:2]",
                           "w[:,3:2]",
                           "w[:,00:2]",
                           "w[:,0:02]",
                           "w[:,+0:2]",
                           "w[:,-1:2]",
                           "w[:, 0:2]",
                           "w[:,0:2 ]",
                           "w[:,0:2:1]",
                           "w[:,0:2,]",
                           "w[:,0:2,:]",
                           "w[0:2,:]",
                           "w[,0:2]",
                           "w[::,0:2]",
                           "w[:,0x0:2]",
                           "w[:,0:2",
                           "w:,0:2]",
                           "w[:,0:2]x",
                           "w[:,0:2].weight",
                           "w[:,0:9223372036854775808]",
                           "w[:,0:18446744073709551616]",
                           "w[:,0:99999999999999999999]"}) {
    EXPECT_FALSE(parse_block_name(name)) << name;
  }
  EXPECT_FALSE(parse_block_name(std::string_view("w[:,0:\0002]", 9)));
}

}  // namespace
}  // namespace ckptctl
