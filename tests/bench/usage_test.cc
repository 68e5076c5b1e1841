// What /proc says of a process, and texts that it never says.
#include "bench/usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace bench {
namespace {

constexpr char kStatus[] = "Name:\tckptd\nVmPeak:\t  900 kB\nVmHWM:\t  512 kB\nVmRSS:\t 1 kB\n";

TEST(Usage, ReadsTimesBehindAnyName) {
  const auto usage =
      parse_usage("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0", kStatus, 100);
  ASSERT_TRUE(usage.ok()) << usage.error().message;
  EXPECT_DOUBLE_EQ(usage->cpu_seconds, 3.0);
  EXPECT_EQ(usage->resident_bytes_peak, 512u << 10);
}

TEST(Usage, RefusesWhatHasNoSuchField) {
  const char* stat = "7 (a) S 1 2 3 4 5 6 7 8 9 10 250 50";
  for (const char* cut : {"", "7", "7 (a", "7 (a) S 1 2", "7 (a) S 1 2 3 4 5 6 7 8 9 10 x y"}) {
    EXPECT_FALSE(parse_usage(cut, kStatus, 100).ok()) << cut;
  }
  for (const char* cut : {"", "VmPeak:\t1 kB\n", "Name:\ta\nVmHWM:\tmuch kB\n"}) {
    EXPECT_FALSE(parse_usage(stat, cut, 100).ok()) << cut;
  }
}

TEST(Usage, CountsWhatThisProcessDoes) {
  const auto before = usage_of(::getpid());
  ASSERT_TRUE(before.ok()) << before.error().message;
  EXPECT_GT(before->resident_bytes_peak, 0u);
  const double own = own_cpu_seconds();
  volatile uint64_t work = 0;
  // Until the process has used it, whoever else runs: /proc counts in hundredths of a second.
  while (own_cpu_seconds() - own < 0.05) work = work + 1;
  const auto after = usage_of(::getpid());
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_GT(after->cpu_seconds, before->cpu_seconds);
}

TEST(Usage, SaysWhoHasEnded) {
  const pid_t nobody = 1 << 23;  // above the kernel's largest number
  const auto usage = usage_of(nobody);
  ASSERT_FALSE(usage.ok());
  EXPECT_NE(usage.error().message.find("8388608"), std::string::npos) << usage.error().message;
}

}  // namespace
}  // namespace bench
