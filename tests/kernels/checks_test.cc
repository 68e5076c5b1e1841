// Every check of kernels as a test of GoogleTest.
#include <limits>

#include "tests/kernels/check_test.h"

namespace ckpt::kernels {
namespace {

class KernelCheck : public CheckTest {};

TEST_P(KernelCheck, FindsNothingWrong) { expect_nothing_wrong(); }

INSTANTIATE_TEST_SUITE_P(All, KernelCheck, testing::ValuesIn(all_checks(/*tiny=*/true)),
                         check_name);

// A kernel that is wrong everywhere would have to be found by these.
TEST(Checker, ReportsEachFinding) {
  Checker c(nullptr, 1);
  c.expect(true, "nothing");
  c.now("trial 7");
  c.expect(false, "the sum");
  c.expect_equal(std::vector<int>{1, 2, 3}, {1, 2, 4}, "the numbers");
  c.expect_equal(std::vector<int>{1, 2, 3}, {1, 2}, "the numbers");
  c.expect_near(1.0, 1.25, 0.25, "far enough");
  c.expect_near(1.0, 1.25, 0.125, "too far");
  c.expect_near(std::numeric_limits<double>::quiet_NaN(), 1, 1e9, "no number");
  EXPECT_THAT(c.findings(),
              testing::ElementsAre("trial 7: the sum", "trial 7: the numbers: differs at 2",
                                   "trial 7: the numbers: 3 values, not 2",
                                   testing::HasSubstr("too far: 1.0"), testing::HasSubstr("no n")));
}

}  // namespace
}  // namespace ckpt::kernels
