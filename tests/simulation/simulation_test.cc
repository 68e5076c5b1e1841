// CKPT_SIMULATION_SEED=N plays that history alone; CKPT_SIMULATION_SEEDS=N plays N of them.
#include "tests/simulation/simulation.h"

#include <cstdlib>

namespace ckptd::testing {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void play_all(Simulation::Options options, const char* test) {
  const uint64_t only = from_environment("CKPT_SIMULATION_SEED", 0);
  const uint64_t count = from_environment("CKPT_SIMULATION_SEEDS", 25);
  size_t announced = 0;
  size_t pruned = 0;
  for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : count); ++seed) {
    options.seed = seed;
    Simulation simulation(options);
    simulation.play();
    announced += simulation.announced();
    pruned += simulation.pruned();
    if (::testing::Test::HasFailure()) {
      FAIL() << "to repeat: CKPT_SIMULATION_SEED=" << seed
             << " build/release/tests/simulation_test --gtest_filter=Simulation." << test;
    }
  }
  // Histories in which little is ever committed would prove little.
  if (only == 0) {
    EXPECT_GT(announced, 2 * count);
    EXPECT_EQ(options.prune, pruned > 0);
  }
}

TEST(Simulation, CrashesAndLosses) { play_all({}, "CrashesAndLosses"); }
TEST(Simulation, CrashesLossesAndDiskFaults) {
  play_all({.disk_faults = true}, "CrashesLossesAndDiskFaults");
}
TEST(Simulation, PartialSnapshots) {
  play_all({.disk_faults = true, .partial = true}, "PartialSnapshots");
}

TEST(Simulation, Prunes) {
  play_all({.events = 90, .disk_faults = true, .partial = true, .prune = true}, "Prunes");
}

}  // namespace
}  // namespace ckptd::testing
