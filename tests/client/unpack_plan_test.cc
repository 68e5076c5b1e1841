// A window's pieces become calls of unpack. No device, no daemon.
#include "client/src/cuda/unpack_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/base/ids.h"

namespace ckpt::lib {
namespace {

class UnpackPlanTest : public testing::Test {
 protected:
  void add(uint64_t at, uint64_t length, size_t range = 0, uint64_t offset = 0) {
    pieces_.push_back({range, offset, length, at, static_cast<uint32_t>(at ^ length)});
  }
  UnpackPlan plan() { return plan_unpack(pieces_, to_); }

  std::vector<std::byte> memory_{1 << 10};
  std::vector<ckpt_cuda_destination> to_{{0, 0, memory_.data(), 100},
                                         {7, 50, memory_.data() + 500, 100}};
  std::vector<ckpt_restore_piece> pieces_;
};

TEST_F(UnpackPlanTest, DisjointPiecesNeedOneCallInOrder) {
  add(9000, 60, 1, 40);
  add(8500, 100);
  add(8600, 0);
  const UnpackPlan plan = this->plan();
  EXPECT_EQ(plan.begin, 2 * kBlockBytes);
  EXPECT_EQ(plan.begin + plan.bytes, 9060u);
  EXPECT_EQ(plan.ranges, 2u);
  ASSERT_EQ(plan.calls.size(), 1u);
  const UnpackCall& call = plan.calls[0];
  EXPECT_EQ(call.numbers, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(call.pieces[0].to, memory_.data());
  EXPECT_EQ(call.pieces[0].offset, 8500 - plan.begin);
  EXPECT_EQ(call.pieces[1].to, memory_.data() + 540);
  EXPECT_EQ(call.ranges[1].bytes, 60u);
  EXPECT_EQ(call.expected[1], pieces_[0].crc32c);
}

TEST_F(UnpackPlanTest, EmptyPlanHasNoCalls) {
  EXPECT_TRUE(plan().calls.empty());
  add(5, 0);
  EXPECT_TRUE(plan().calls.empty());
  EXPECT_EQ(plan().bytes, 0u);
}

TEST_F(UnpackPlanTest, CallsEqualDeepestOverlap) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    pieces_.clear();
    std::vector<int> depth(1000);
    for (size_t i = 1 + random() % 30; i > 0; --i) {
      const uint64_t at = random() % 900;
      const uint64_t length = random() % 100;
      add(at, length);
      for (uint64_t byte = at; byte < at + length; ++byte) ++depth[byte];
    }
    const UnpackPlan plan = this->plan();
    EXPECT_EQ(plan.calls.size(),
              static_cast<size_t>(*std::max_element(depth.begin(), depth.end())));
    std::vector<int> seen(pieces_.size());
    for (const UnpackCall& call : plan.calls) {
      uint64_t end = 0;
      for (size_t i = 0; i < call.numbers.size(); ++i) {
        const ckpt_restore_piece& piece = pieces_[call.numbers[i]];
        EXPECT_GE(call.ranges[i].offset, end);
        EXPECT_EQ(call.ranges[i].offset + plan.begin, piece.at);
        end = call.ranges[i].offset + call.ranges[i].bytes;
        EXPECT_LE(end, plan.bytes);
        ++seen[call.numbers[i]];
      }
    }
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], pieces_[i].length > 0 ? 1 : 0);
  }
}

}  // namespace
}  // namespace ckpt::lib
