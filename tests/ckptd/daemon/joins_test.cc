// Joins that wait, and the messages about them.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JoinsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(world.start().ok()); }
  static std::string reason(FakeTrainer& trainer) {
    const auto reply = trainer.query("join", "");
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    return nlohmann::json::parse(reply.json).at("reason");
  }

  World world{{}};
};

TEST_F(JoinsTest, WaitingRankLearnsWhoHoldsItsPlace) {
  Job first(world, 1);
  first.start();
  world.tick(std::chrono::seconds(75));
  Job second(world, 1);
  second.add_rank();
  second.ranks[0]->join(0, 1, fb::ResumeMode::Continue);
  world.run();
  EXPECT_FALSE(second.ranks[0]->started());
  EXPECT_THAT(
      reason(*second.ranks[0]),
      AllOf(HasSubstr("its place is held by process "), HasSubstr("of user 54321"),
            HasSubstr("connected since 2023-11-14T22:13:20Z"), HasSubstr("another run name")));
  first.ranks[0]->die();
  world.run();
  EXPECT_TRUE(second.ranks[0]->started());
  EXPECT_EQ(reason(*second.ranks[0]), "");
}

TEST_F(JoinsTest, MissingRanksAreNamed) {
  Job job(world, 4);
  for (int i = 0; i < 2; ++i) job.add_rank();
  job.ranks[0]->join(0, 4, fb::ResumeMode::Start);
  job.ranks[1]->join(2, 4, fb::ResumeMode::Start);
  world.run();
  EXPECT_EQ(reason(*job.ranks[0]), "ranks 1, 3 of 4 did not join yet");
}

// The client chooses the size of the group, so the message has a bounded length.
TEST_F(JoinsTest, ManyMissingRanksAreCounted) {
  Job job(world, 1);
  job.add_rank();
  job.ranks[0]->join(0, 4000, fb::ResumeMode::Start);
  world.run();
  EXPECT_THAT(reason(*job.ranks[0]), HasSubstr("ranks 1, 2, 3"));
  EXPECT_THAT(reason(*job.ranks[0]), HasSubstr("and 3983 more of 4000"));
}

TEST_F(JoinsTest, DuplicateElasticMemberErrorNamesHolder) {
  Job first(world, 1, {.elastic = true});
  first.start();
  Job second(world, 1, {.elastic = true});
  second.add_rank();
  second.ranks[0]->join(0, 1, fb::ResumeMode::Continue);
  world.run();
  EXPECT_THAT(second.ranks[0]->error(),
              AllOf(HasSubstr("is taken by another session"), HasSubstr("is held by process ")));
}

}  // namespace
}  // namespace ckptd::testing
