// SavedRunTest: a fixture with a daemon, a run of two ranks, and its commits at steps 5 and 10.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {

class SavedRunTest : public ::testing::Test {
 protected:
  explicit SavedRunTest(World::Options options = {}) : world(std::move(options)), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
    for (const ckpt::Step step : {5, 10}) job.commit(step);
  }
  // A new control session of root, such as ckptctl opens.
  FakeTrainer& root() {
    root_ = std::make_unique<FakeTrainer>(
        world, FakeTrainer::Options{.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root_->connect());
    return *root_;
  }

  World world;
  Job job;

 private:
  std::unique_ptr<FakeTrainer> root_;
};

}  // namespace ckptd::testing
