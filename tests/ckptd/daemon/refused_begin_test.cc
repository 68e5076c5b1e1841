// The last member's begin is refused, after the other members have sealed and written everything.
// The last member declares no fragments: its begin alone completes the snapshot.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RefusedBeginTest : public ::testing::Test {
 protected:
  RefusedBeginTest() : world({}), job(world, 2) {
    world.set_on_send([this](ckpt::SessionId session, const fb::MessageT& message) {
      const auto* state = message.body.AsSnapshotState();
      if (state != nullptr && state->step == 5) reported_levels[session].push_back(state->level);
    });
    EXPECT_TRUE(world.start().ok());
    job.start();
    plan = even_plan(job.model, job.all_units(), 1);  // all fragments on rank 0
  }
  // Every member has heard once that step 5 failed, and it is not committed.
  void expect_failed(const std::string& why) {
    world.run();
    EXPECT_THAT(job.ranks[1]->error(), HasSubstr(why));
    job.listen();
    for (auto& rank : job.ranks) {
      EXPECT_THAT(reported_levels[rank->session()], ElementsAre(fb::SnapshotLevel::Failed));
      EXPECT_THAT(rank->snapshot(5).reason, HasSubstr(why));
    }
    EXPECT_TRUE(job.log(*job.ranks[0]).empty());
  }
  uint64_t available_bytes() {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    const auto status = nlohmann::json::parse(root.query("status", "{}").json);
    root.die();
    return status["disk"]["available_bytes"];
  }

  std::map<ckpt::SessionId, std::vector<fb::SnapshotLevel>> reported_levels;  // of step 5
  World world;
  Job job;
  ckpt::Plan plan;
};

// Open segments have room that only another snapshot's reservation can take up.
void reserve_more_than_segments_hold(Job& other) {
  constexpr uint64_t kBytes = 16ull << 20;
  other.model.resize(1);
  other.model[0].bytes = kBytes;
  other.model[0].tensors.clear();
  other.start();
  fb::BeginSnapshotT begin;
  begin.epoch = other.ranks[0]->epoch().epoch;
  begin.step = 1;
  begin.plan = ckpt::wire::to_fb(plan_hash(other.plan({0})));
  begin.units = {0};
  begin.fragments.emplace_back(0, 0, 0, kBytes);
  begin.slabs_wanted = 1;
  begin.streams = true;
  other.ranks[0]->send(std::move(begin));
  other.world.run();
  EXPECT_EQ(other.ranks[0]->error(), "");
}

TEST_F(RefusedBeginTest, AFullDiskFailsACompleteSnapshot) {
  constexpr uint64_t kCapacity = 1ull << 30;
  world.disk().set_capacity(kCapacity);
  Job other(world, 1, {.run = "other"});
  reserve_more_than_segments_hold(other);
  job.ranks[0]->begin(5, plan);
  world.run();
  ASSERT_TRUE(job.ranks[0]->fill(5)) << job.ranks[0]->error();
  world.run();
  world.disk().set_capacity(kCapacity - available_bytes() + 4096);
  job.ranks[1]->begin(5, plan);
  expect_failed("disk full: ");
  world.disk().set_capacity(kCapacity);
  job.commit(6);
  world.stop();
}

TEST_F(RefusedBeginTest, AWrongSlabFailsACompleteReopenedSnapshot) {
  job.begin(5, plan);
  ASSERT_TRUE(job.ranks[0]->fill(5)) << job.ranks[0]->error();
  job.ranks[1]->listen();
  job.ranks[1]->snapshot(5).slabs = {9'999};
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  ASSERT_TRUE(job.ranks[0]->reconnect()) << job.ranks[0]->error();
  world.run();
  ASSERT_TRUE(job.ranks[1]->reconnect()) << job.ranks[1]->error();
  expect_failed("slab 9999 is not leased");
  job.commit(6);
  world.stop();
}

}  // namespace
}  // namespace ckptd::testing
