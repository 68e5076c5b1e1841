// A store keeps its version until the first record of a newer kind. The start of a newer ckptd
// alone does not prevent a return to an older one.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class StoreVersionTest : public ::testing::Test {
 protected:
  StoreVersionTest() : world({}), job(world, 1) { EXPECT_TRUE(world.start().ok()); }
  std::vector<uint32_t> versions() {
    std::vector<uint32_t> all;
    for (const auto& record : journal_records(world.disk())) {
      if (const auto* opened = record.body.AsStoreOpened()) all.push_back(opened->format_version);
    }
    return all;
  }
  std::string ask(const std::string& verb, const std::string& args) {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    const auto answer = root.query(verb, args);
    EXPECT_EQ(answer.exit_code, 0) << answer.json;
    world.run();
    return answer.json;
  }
  World world;
  Job job;
};

TEST_F(StoreVersionTest, StartAloneKeepsVersion) {
  job.start();
  job.commit(5);
  const uint32_t before = versions().back();
  EXPECT_LT(before, ckpt::kStoreFormatVersion);
  for (int i = 0; i < 3; ++i) {
    world.stop();
    ASSERT_TRUE(world.start().ok());
  }
  EXPECT_THAT(versions(), Each(before));
}

TEST_F(StoreVersionTest, FirstNewerRecordRaisesVersion) {
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  ask("pin", R"({"target": "tiny@5"})");
  EXPECT_EQ(versions().back(), 3u);
  ask("pin", R"({"target": "tiny@10"})");
  ask("grant", R"({"target": "tiny", "user": 7, "rights": ["read"]})");
  EXPECT_THAT(versions(), ElementsAre(1, 3, 6));
  const std::string log = ask("log", R"({"target": "tiny"})");
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(versions().back(), 6u) << "and stays";
  EXPECT_EQ(ask("log", R"({"target": "tiny"})"), log);
}

// An older program reads the journal up to its refusal, and must know every record before that.
TEST_F(StoreVersionTest, NoRecordComesBeforeItsVersion) {
  job.start();
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  ask("keep", R"({"target": "tiny", "rules": {"last": 2}})");
  ask("prune", R"({"target": "tiny"})");
  ask("grant", R"({"target": "tiny", "user": 7, "rights": ["read"]})");
  world.set_codec(CodecChoice::kDelta);
  world.stop();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  for (const ckpt::Step step : {20, 25}) job.commit(step);
  uint32_t version = 0;
  for (const auto& record : journal_records(world.disk())) {
    if (const auto* opened = record.body.AsStoreOpened()) version = opened->format_version;
    EXPECT_LE(ckpt::store_version_of(record), version);
  }
  EXPECT_GE(version, 6u);
}

// An older program would report an unknown type as damage.
TEST_F(StoreVersionTest, NewTensorTypeRaisesVersion) {
  const std::vector<ckpt::UnitSpec> units = {
      {.name = "w", .bytes = 4, .tensors = {{"w", ckpt::DType::kF8E8M0, {4}, 0}}}};
  FakeTrainer trainer(world, {.run = "fp8"});
  ASSERT_TRUE(trainer.connect());
  ASSERT_TRUE(trainer.register_units(units)) << trainer.error();
  EXPECT_THAT(versions(), ElementsAre(1, 9));
  world.stop();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(versions().back(), 9u);
}

// The disk is full: neither the new version nor its record is written, and a retry writes both.
TEST_F(StoreVersionTest, RefusedBatchKeepsVersion) {
  job.start();
  job.commit(5);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  world.disk().set_faults({.path_prefix = "journal/", .full_nth_write = 1});
  EXPECT_EQ(root.query("pin", R"({"target": "tiny@5"})").exit_code, 1);
  world.disk().set_faults({});
  EXPECT_THAT(versions(), ElementsAre(1));
  EXPECT_EQ(root.query("pin", R"({"target": "tiny@5"})").exit_code, 0);
  EXPECT_THAT(versions(), ElementsAre(1, 3));
}

}  // namespace
}  // namespace ckptd::testing
