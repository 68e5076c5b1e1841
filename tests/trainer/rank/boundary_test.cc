#include "trainer/rank/boundary.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moetrain {
namespace {

TEST(BoundaryTest, EveryFieldRoundTripsThroughValues) {
  for (size_t i = 0; i < to_values({}).size(); ++i) {
    std::vector<int64_t> values(to_values({}).size());
    values[i] = 1;
    EXPECT_EQ(to_values(boundary_from(values)), values) << i;
  }
  const Boundary steps{.failed_snapshot = 40, .lost_snapshot = 30};
  EXPECT_EQ(boundary_from(to_values(steps)), steps);
}

TEST(BoundaryTest, MaximumCombinesStatementsOfRanks) {
  const Boundary one{.stop = true, .failed_snapshot = 40, .joiners = true};
  const Boundary other{
      .daemon_absent = true, .failed_snapshot = 20, .lost_snapshot = 10, .retake = true};
  std::vector<int64_t> values = to_values(one);
  std::ranges::transform(values, to_values(other), values.begin(),
                         [](int64_t a, int64_t b) { return std::max(a, b); });
  const Boundary group = boundary_from(values);
  EXPECT_EQ(group, (Boundary{.stop = true,
                             .daemon_absent = true,
                             .failed_snapshot = 40,
                             .lost_snapshot = 10,
                             .joiners = true,
                             .retake = true}));
}

}  // namespace
}  // namespace moetrain
