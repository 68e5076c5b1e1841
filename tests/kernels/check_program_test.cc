// Exit codes of a check program: "skipped" must never hide a failed check.
#include "tests/kernels/check_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {
namespace {

using testing::HasSubstr;
using testing::Not;

void find_nothing(Checker&) {}
void find_something(Checker& c) { c.expect(false, "two is three"); }

struct Ended {
  int code = 0;
  std::string output;
};
Ended run(const std::vector<Check>& checks, const std::vector<std::string>& arguments = {}) {
  testing::internal::CaptureStdout();
  const int code = run_check_program({"a_check", [&](bool) { return checks; }}, arguments);
  return {code, testing::internal::GetCapturedStdout()};
}

// On the emulated device, as on a GPU, all is run; built for CUDA without one some is skipped.
int all_is_well() { return why_no_test_device().empty() ? 0 : kSkippedExitCode; }

TEST(CheckProgram, PassingChecksReportNoFindings) {
  const Ended ended =
      run({{"one", Backend::kCpu, find_nothing}, {"two", Backend::kCuda, find_nothing}});
  EXPECT_EQ(ended.code, all_is_well()) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("1 checks on the CPU, 0 found something"));
}

TEST(CheckProgram, NotesAreReportedWithoutFindings) {
  const Ended ended = run({{"one", Backend::kCpu, [](Checker& c) { c.note("off by 0.1"); }}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.output, HasSubstr("\nnote one: off by 0.1\n"));
  EXPECT_THAT(ended.output, HasSubstr("1 checks on the CPU, 0 found something"));
}

TEST(CheckProgram, CpuFindingsFailEvenWithoutGpu) {
  const Ended ended =
      run({{"one", Backend::kCpu, find_something}, {"two", Backend::kCuda, find_nothing}});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("FAILED one: two is three"));
}

TEST(CheckProgram, FailedAllocationIsFindingAndOthersRun) {
  const auto take_too_much = [](Checker&) { device_array<std::byte>(int64_t{1} << 60); };
  const Ended ended =
      run({{"greedy", Backend::kCpu, take_too_much}, {"modest", Backend::kCpu, find_nothing}});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("FAILED greedy: CUDA: allocating"));
  EXPECT_THAT(ended.output, HasSubstr("2 checks on the CPU, 1 found something"));
}

TEST(CheckProgram, DeviceFlagSkipsCpuChecks) {
  const Ended ended = run({{"one", Backend::kCpu, find_something}}, {"--device"});
  EXPECT_EQ(ended.code, all_is_well());
  EXPECT_THAT(ended.output, Not(HasSubstr("FAILED")));
}

TEST(CheckProgram, RunsOneGroupOfItsChecks) {
  const std::vector<Check> checks{{"wrong", Backend::kCpu, find_something, "others"},
                                  {"right", Backend::kCpu, find_nothing, "these"},
                                  {"also_right", Backend::kCpu, find_nothing, "these"},
                                  {"alone", Backend::kCpu, find_nothing}};
  EXPECT_EQ(run(checks, {"--groups"}).output, "others\nthese\nalone\n");
  const Ended these = run(checks, {"--group", "these"});
  EXPECT_EQ(these.code, 0) << these.output;
  EXPECT_THAT(these.output, HasSubstr("2 checks on the CPU, 0 found something"));
  EXPECT_EQ(run(checks, {"--group", "others"}).code, 1);
  EXPECT_THAT(run(checks, {"--group", "alone"}).output, HasSubstr("1 checks on the CPU"));
  EXPECT_EQ(run(checks, {"--group", "thes"}).code, 2);
}

TEST(CheckProgram, ChecksAreSkippedByName) {
  const std::vector<Check> checks{{"wrong_in_bf16", Backend::kCpu, find_something},
                                  {"right_in_fp32", Backend::kCpu, find_nothing}};
  const Ended without = run(checks, {"--without", "bf16"});
  EXPECT_EQ(without.code, 0) << without.output;
  EXPECT_THAT(without.output, HasSubstr("1 checks on the CPU, 0 found something"));
  EXPECT_EQ(run(checks, {"--without", "_in_"}).code, 2);
}

TEST(CheckProgram, UnknownArgumentsAreRefusedAndHelpWorksAnywhere) {
  EXPECT_EQ(run({}, {"--sed", "1"}).code, 2);
  EXPECT_EQ(run({}, {"--seed", "1x"}).code, 2);
  EXPECT_EQ(run({}, {"--filter", "nothing_is_called_that"}).code, 2);
  const Ended help = run({}, {"--tiny", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.output, HasSubstr("--device"));
}

}  // namespace
}  // namespace ckpt::kernels
