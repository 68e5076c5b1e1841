// Behaviour of a check program when the device is lost; only the emulated one can be lost at will.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/check_program.h"
#include "tests/kernels/cuda_variant.h"
#include "tests/support/cuda_emulator/control.h"

namespace ckpt::kernels {
namespace {

TEST(CheckProgram, LostDeviceIsReportedAndSkipsLaterChecks) {
  const auto lose_the_device = [](Checker&) {
    cuda_emulator::fail_calls(0, uint64_t{1} << 40);
    device_array<float>(7);
  };
  const auto find_nothing = [](Checker& c) { device_array<float>(c.queue(), {1.0f}); };
  testing::internal::CaptureStdout();
  const int code =
      run_check_program({"a_check",
                         [&](bool) {
                           return std::vector<Check>{{"first", Backend::kCuda, find_nothing},
                                                     {"loser", Backend::kCuda, lose_the_device},
                                                     {"later", Backend::kCuda, find_nothing},
                                                     {"latest", Backend::kCuda, find_nothing}};
                         }},
                        {});
  cuda_emulator::fail_no_calls();
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, testing::HasSubstr("FAILED loser: CUDA: allocating 28 bytes"));
  EXPECT_THAT(output, testing::HasSubstr("the device is lost since loser; 2 checks are not run"));
  EXPECT_THAT(output, testing::HasSubstr("2 checks on the GPU, 1 found something"));
  EXPECT_THAT(output, testing::Not(testing::HasSubstr("FAILED later")));
}

}  // namespace
}  // namespace ckpt::kernels
