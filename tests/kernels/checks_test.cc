// Every check of kernels as a test of GoogleTest. Those for CUDA run on a GPU, or on the emulated
// one; built for CUDA and without a device they are skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/checker.h"

namespace ckpt::kernels {

void PrintTo(const Check& check, std::ostream* out) { *out << check.name; }

namespace {

class KernelCheck : public testing::TestWithParam<Check> {
 protected:
  void SetUp() override {
    if (GetParam().backend == Backend::kCpu) return;
    std::string reason;
    if (cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
  }

  std::unique_ptr<CudaQueue> queue_;
};

TEST_P(KernelCheck, FindsNothingWrong) {
  constexpr uint64_t kSeed = 20241121;  // gpu_check takes a fresh one
  EXPECT_THAT(findings_of(GetParam(), queue_.get(), kSeed), testing::IsEmpty()) << "seed " << kSeed;
}

std::string check_name(const testing::TestParamInfo<Check>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, KernelCheck, testing::ValuesIn(all_checks()), check_name);

// A kernel that is wrong everywhere would have to be found by these.
TEST(Checker, SaysWhatIsWrong) {
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
