// Every disk that a loss of power can leave. Under ./dev fuzz, of more lives: CKPT_FUZZ_SECONDS
// from CKPT_FUZZ_SEED on.
#include "tests/simulation/crash_replay.h"

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "tests/simulation/left_out.h"

namespace ckptd::testing {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

using Kind = CrashReplay::Kind;

class EveryDisk : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(CrashReplay, EveryDisk, ::testing::Values(Kind::kWhole, Kind::kDeltas),
                         [](const auto& test) {
                           return test.param == Kind::kWhole ? "whole" : "deltas";
                         });

TEST_P(EveryDisk, HoldsAnnouncedCommits) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(from_environment("CKPT_FUZZ_SECONDS", 0));
  uint64_t seed = from_environment("CKPT_FUZZ_SEED", 1);
  do {
    CrashReplay replay(seed, GetParam());
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(replay.violation(), "")
        << "to repeat: CKPT_FUZZ_SEED=" << seed << " build/release/tests/crash_replay_test";
    EXPECT_GT(replay.disks(), replay.moments());
    std::cout << "seed " << seed << ": " << replay.moments() << " moments, " << replay.disks()
              << " disks\n";
    ++seed;
  } while (!HasFailure() && std::chrono::steady_clock::now() < end);
}

// Crash replay detects a missing safeguard.
class WithoutSafeguard : public ::testing::TestWithParam<const char*> {
 protected:
  ~WithoutSafeguard() override { put_back(); }
};

TEST_P(WithoutSafeguard, IsFound) {
  ASSERT_TRUE(leave_out(GetParam()));
  std::string found;
  for (uint64_t seed = 1; seed <= 10 && found.empty(); ++seed) {
    CrashReplay replay(seed, Kind::kWhole);
    found = replay.violation();
  }
  EXPECT_NE(found, "");
}

INSTANTIATE_TEST_SUITE_P(CrashReplay, WithoutSafeguard,
                         ::testing::Values("segment-sync", "commit-order", "tombstone-first"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ckptd::testing
