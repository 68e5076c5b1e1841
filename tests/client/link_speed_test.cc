// The size of chunks by the speed of the link. Pure.
#include "client/src/cuda/link_speed.h"

#include <gtest/gtest.h>

namespace ckpt::lib {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr double kPcie = 55e9;
constexpr double kNvlink = 450e9;

TEST(LinkSpeedTest, ChunksGrowOnFastLinks) {
  EXPECT_EQ(chunk_bytes_for(0, 256 * kMiB), 16 * kMiB);
  EXPECT_EQ(chunk_bytes_for(kPcie, 256 * kMiB), 16 * kMiB);
  EXPECT_EQ(chunk_bytes_for(2 * kPcie, 256 * kMiB), 16 * kMiB);
  EXPECT_EQ(chunk_bytes_for(200e9, 256 * kMiB), 32 * kMiB);
  EXPECT_EQ(chunk_bytes_for(kNvlink, 1024 * kMiB), 128 * kMiB);
}

TEST(LinkSpeedTest, FourLongChunksFitBuffer) {
  EXPECT_EQ(chunk_bytes_for(kNvlink, 256 * kMiB), 64 * kMiB);
  EXPECT_EQ(chunk_bytes_for(kNvlink, 127 * kMiB), 16 * kMiB);
  EXPECT_EQ(chunk_bytes_for(kNvlink, 32 * kMiB), 16 * kMiB);
}

}  // namespace
}  // namespace ckpt::lib
