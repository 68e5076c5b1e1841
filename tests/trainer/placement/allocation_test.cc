#include "trainer/placement/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(AllocationTest, FollowsEquationOne) {
  // Ascending 10, 20, 70 of 100 with 10 slots: floor(10/100*10) = 1 -> 2, floor(20/90*8) = 1 -> 2,
  // the last gets the 6 that are left.
  EXPECT_THAT(*allocate_replicas(std::vector<uint64_t>{70, 10, 20}, 10, 2), ElementsAre(6, 2, 2));
  EXPECT_THAT(*allocate_replicas(std::vector<uint64_t>{5, 5, 5}, 9, 1), ElementsAre(3, 3, 3));
  EXPECT_THAT(*allocate_replicas(std::vector<uint64_t>{0, 0, 0, 0}, 6, 1), ElementsAre(1, 1, 2, 2));
  const std::vector<uint64_t> huge = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  EXPECT_THAT(*allocate_replicas(huge, 30, 1), ElementsAre(10, 10, 10));
}

TEST(AllocationTest, SumsToTheSlotsAndKeepsTheMinimum) {
  const uint32_t seed = 4;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t least = 1 + random() % 3;
    std::vector<uint64_t> loads(1 + random() % 12);
    for (uint64_t& load : loads) load = random() % 5 == 0 ? 0 : random() % 1000;
    const uint32_t slots = static_cast<uint32_t>(loads.size()) * least + random() % 40;
    const auto replicas = allocate_replicas(loads, slots, least);
    ASSERT_TRUE(replicas.ok()) << replicas.error().message;
    EXPECT_EQ(std::accumulate(replicas->begin(), replicas->end(), 0u), slots);
    for (size_t a = 0; a < loads.size(); ++a) {
      EXPECT_GE((*replicas)[a], least);
      for (size_t b = 0; b < loads.size(); ++b) {
        if (loads[a] < loads[b]) {
          EXPECT_LE((*replicas)[a], (*replicas)[b]);
        }
      }
    }
  }
}

TEST(AllocationTest, RefusesInvalidRequest) {
  const std::vector<uint64_t> three = {1, 2, 3};
  EXPECT_THAT(allocate_replicas(three, 5, 2).error().message,
              HasSubstr("5 slots for 3 experts of at least 2 replicas"));
  EXPECT_FALSE(allocate_replicas(three, 5, 0).ok());
  EXPECT_FALSE(allocate_replicas({}, 5, 1).ok());
}

}  // namespace
}  // namespace moetrain
