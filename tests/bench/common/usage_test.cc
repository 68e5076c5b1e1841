// Usage of a process from /proc, and texts that /proc never contains.
#include "bench/common/usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace bench {
namespace {

constexpr char kStatus[] = "Name:\tckptd\nVmPeak:\t  900 kB\nVmHWM:\t  512 kB\nVmRSS:\t 1 kB\n";

TEST(Usage, FindsThePeak) {
  const auto peak = parse_resident_peak(kStatus);
  ASSERT_TRUE(peak.ok()) << peak.error().message;
  EXPECT_EQ(*peak, 512u << 10);
}

TEST(Usage, RefusesTextWithoutPeakField) {
  for (const char* cut : {"", "VmPeak:\t1 kB\n", "Name:\ta\nVmHWM:\tmuch kB\n"}) {
    EXPECT_FALSE(parse_resident_peak(cut).ok()) << cut;
  }
}

TEST(Usage, CountsCpuTimeOfThisProcess) {
  const auto before = usage_of(::getpid());
  ASSERT_TRUE(before.ok()) << before.error().message;
  EXPECT_GT(before->resident_bytes_peak, 0u);
  const double own = own_cpu_seconds();
  volatile uint64_t work = 0;
  // Until the process has used 3 ms, a third of the resolution of /proc/PID/stat.
  while (own_cpu_seconds() - own < 0.003) work = work + 1;
  const auto after = usage_of(::getpid());
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_GE(after->cpu_seconds - before->cpu_seconds, 0.0029);
}

TEST(Usage, NamesMissingProcess) {
  const pid_t nobody = 1 << 23;  // above the kernel's largest process number
  const auto usage = usage_of(nobody);
  ASSERT_FALSE(usage.ok());
  EXPECT_NE(usage.error().message.find("8388608"), std::string::npos) << usage.error().message;
}

}  // namespace
}  // namespace bench
