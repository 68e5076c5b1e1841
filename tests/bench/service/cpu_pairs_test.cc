// CPU time of a save: metered pair by pair, with its own bound.
#include "bench/service/cpu_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

nlohmann::json cpu_of(double engine) {
  const auto pairs = [](double value) { return std::vector<double>(12, value); };
  return cpu_json({.loop = pairs(0.01), .crc = pairs(0.03), .engine = pairs(engine)});
}

TEST(CpuPairs, MetersOneSampleForEachRun) {
  double now = 0;
  CpuMeter meter;
  const auto clock = [&] { return Result<double>(now); };
  const auto work = [&](double seconds) {
    return meter.meter(clock, [&]() -> Result<double> { return now += seconds; });
  };
  ASSERT_TRUE(work(1).ok());
  ASSERT_TRUE(work(3).ok());
  EXPECT_THAT(meter.per_gb(2'000'000'000), ElementsAre(0.5, 1.5));
}

TEST(CpuPairs, HoldsTheEngineToLoopAndCrcTogether) {
  EXPECT_EQ(cpu_of(0.059)["verdict"], "pass");
  EXPECT_EQ(cpu_of(0.061)["verdict"], "fail");
  const nlohmann::json cpu = cpu_of(0.02);
  EXPECT_DOUBLE_EQ(cpu["ratio"].get<double>(), 0.5);
  EXPECT_EQ(cpu["ratio_to_limit_and_crc"], cpu["ratio"]);
  EXPECT_EQ(cpu["pass_ratio"], 1.5);
  EXPECT_EQ(cpu["runs"].size(), 12u);
  EXPECT_EQ(cpu["crc_seconds_per_gb"], 0.03);
  EXPECT_EQ(cpu["limit_seconds_per_gb"], 0.01);
  EXPECT_EQ(cpu["seconds_per_gb"], 0.02);
  EXPECT_THAT(cpu_text(cpu), HasSubstr("ratio 0.500 [0.500, 0.500]"));
}

// A CRC pass that takes twice as long for half of the run is paired with the engine's samples of
// that time. A single pass at the beginning would bias all ratios.
TEST(CpuPairs, ComparesSamplesTakenSideBySide) {
  CpuPairs cpu;
  for (int i = 0; i < 12; ++i) {
    const double slow = i < 6 ? 2 : 1;
    cpu.loop.push_back(0.01 * slow);
    cpu.crc.push_back(0.03 * slow);
    cpu.engine.push_back(0.05 * slow);
  }
  const nlohmann::json judged = cpu_json(cpu);
  EXPECT_DOUBLE_EQ(judged["ratio"].get<double>(), 1.25);
  EXPECT_DOUBLE_EQ(judged["ratio_interval"][1].get<double>(), 1.25);
  EXPECT_EQ(judged["verdict"], "pass");
}

TEST(CpuPairs, IsInconclusiveAroundBoundOrWithUnstableLimit) {
  CpuPairs cpu;
  for (int i = 0; i < 12; ++i) {
    cpu.loop.push_back(0.01);
    cpu.crc.push_back(0.03);
    cpu.engine.push_back(i % 2 == 0 ? 0.05 : 0.07);
  }
  EXPECT_EQ(cpu_json(cpu)["verdict"], "inconclusive");
  cpu.engine.assign(12, 0.02);
  EXPECT_EQ(cpu_json(cpu)["verdict"], "pass");
  for (int i = 0; i < 12; ++i) cpu.crc[i] = i % 2 == 0 ? 0.03 : 0.05;
  EXPECT_EQ(cpu_json(cpu)["verdict"], "inconclusive");
}

}  // namespace
}  // namespace bench
