// Tokens per expert: from a rank's begin to the history, over restarts, resumes and bad counts.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokensTest : public ::testing::Test {
 protected:
  TokensTest() : world({}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
  }
  // A snapshot of these units; the second rank brings the counts of experts 0, 1, 2.
  void commit(ckpt::Step step, const std::vector<ckpt::UnitId>& units,
              const std::vector<uint64_t>& tokens) {
    job.ranks[1]->expert_tokens.clear();
    for (uint32_t expert = 0; expert < tokens.size(); ++expert) {
      job.ranks[1]->expert_tokens.emplace_back(0, expert, tokens[expert]);
    }
    for (auto& rank : job.ranks) rank->begin(step, job.plan(units));
    world.run();
  }
  void finish(ckpt::Step step) {
    job.fill(step);
    world.run();
    job.listen();
    for (auto& rank : job.ranks) {
      ASSERT_EQ(rank->snapshot(step).level, fb::SnapshotLevel::Durable) << rank->error();
    }
  }
  std::vector<int> lost(const std::string& target, const std::string& field = "lost_tokens") {
    const auto reply = job.ranks[0]->query("experts", "{\"target\": \"" + target + "\"}");
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    const auto document = nlohmann::json::parse(reply.json);
    std::vector<int> list;
    for (const auto& expert : document.at("layers").at(0).at("experts")) {
      list.push_back(expert.at(field).get<int>());
    }
    return list;
  }
  World world;
  Job job;
};

TEST_F(TokensTest, LostTokensAreExactAfterRebuild) {
  commit(5, job.all_units(), {10, 20, 30});
  finish(5);
  commit(10, {0, 1}, {15, 28, 30});
  finish(10);
  EXPECT_THAT(lost("tiny@10"), ElementsAre(0, 8, 0));
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
  EXPECT_THAT(lost("tiny@10"), ElementsAre(0, 8, 0));
}

// Expert 2 has lost tokens by step 5, and expert 0 by step 10.
TEST_F(TokensTest, LostHistorySurvivesRestartAndRebuild) {
  job.ranks[1]->expert_lost = {{0, 2, 7}};
  commit(5, job.all_units(), {10, 20, 30});
  finish(5);
  job.ranks[1]->expert_lost = {{0, 2, 7}, {0, 0, 4}};
  commit(10, {0, 1}, {15, 28, 30});
  finish(10);
  EXPECT_THAT(lost("tiny@10", "lost_so_far"), ElementsAre(4, 0, 7));
  EXPECT_THAT(lost("tiny@10"), ElementsAre(0, 8, 0));
  const auto ask = [&](const std::string& verb, const std::string& target) {
    return job.ranks[0]->query(verb, "{\"target\": \"" + target + "\"}").json;
  };
  EXPECT_THAT(world.daemon().metrics_text(),
              ::testing::AllOf(HasSubstr("\nckptd_run_step{run=\"tiny\"} 10\n"),
                               HasSubstr("\nckptd_run_lost_tokens{run=\"tiny\"} 11\n"),
                               ::testing::Not(HasSubstr("\nckptd_run_plt{"))));
  const std::string experts = ask("experts", "tiny@10");
  const std::string log = ask("log", "tiny");
  EXPECT_EQ(nlohmann::json::parse(log).at(0).at("lost_so_far"), 11);
  EXPECT_EQ(nlohmann::json::parse(log).at(1).at("lost_so_far"), 7);
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
  EXPECT_EQ(ask("experts", "tiny@10"), experts);
  EXPECT_EQ(ask("log", "tiny"), log);
}

TEST_F(TokensTest, ReopenedSnapshotKeepsItsCounts) {
  job.ranks[1]->expert_lost = {{0, 0, 4}};
  commit(5, job.all_units(), {10, 20, 30});
  finish(5);
  commit(10, {0, 1}, {15, 28, 30});
  job.fill(10);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(lost("tiny@10"), ElementsAre(0, 8, 0));
  EXPECT_THAT(lost("tiny@10", "lost_so_far"), ElementsAre(4, 0, 0));
}

TEST_F(TokensTest, CountsContinueFromResumePoint) {
  commit(5, job.all_units(), {10, 20, 30});
  finish(5);
  commit(10, job.all_units(), {500, 600, 700});
  finish(10);
  job.ranks[1]->die();
  world.run();
  job.replace(1);
  job.join(fb::ResumeMode::AtStep, 5);
  commit(8, {0, 1}, {12, 26, 31});  // less than at step 10, which is an abandoned future now
  finish(8);
  EXPECT_THAT(lost("tiny@8"), ElementsAre(0, 6, 1));
}

TEST_F(TokensTest, BadCountsFailOnlyTheirSnapshot) {
  commit(5, job.all_units(), {10, 20, 30});
  finish(5);
  const auto refused = [&](ckpt::Step step, const std::string& part) {
    EXPECT_THAT(job.ranks[1]->error(), HasSubstr(part));
    EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(5)) << step;
  };
  commit(6, {0}, {10, 19, 30});
  refused(6, "run tiny step 6: layer 0 expert 1: 19 tokens, but 20 by step 5");
  commit(7, {0}, {10, 20, 30, 40});
  refused(7, "run tiny step 7: layer 0 expert 3: token counts of an expert that no unit has");
  job.ranks[1]->expert_tokens = {{0, 1, 25}, {0, 1, 25}};
  for (auto& rank : job.ranks) rank->begin(8, job.plan({0}));
  refused(8, "run tiny step 8: layer 0 expert 1: its tokens are given twice");
  job.ranks[1]->expert_lost = {{0, 1, 21}};
  commit(9, {0}, {10, 20, 30});
  refused(9, "run tiny step 9: layer 0 expert 1: 21 tokens lost of 20");
  commit(10, {0}, {});
  refused(10, "run tiny step 10: layer 0 expert 1: its lost tokens are given, but not its tokens");
  job.ranks[1]->expert_lost = {{0, 1, 1}, {0, 1, 1}};
  commit(11, {0}, {10, 20, 30});
  refused(11, "run tiny step 11: layer 0 expert 1: its lost tokens are given twice");
  job.ranks[1]->expert_lost.clear();
  commit(12, {0, 1}, {11, 25, 30});
  finish(12);
  EXPECT_THAT(lost("tiny@12"), ElementsAre(0, 5, 0));
}

TEST_F(TokensTest, RefusesDecreasingLostTokens) {
  job.ranks[1]->expert_lost = {{0, 1, 9}};
  commit(5, job.all_units(), {10, 20, 30});
  finish(5);
  job.ranks[1]->expert_lost = {{0, 1, 8}};
  commit(6, {0, 1}, {10, 20, 30});
  EXPECT_THAT(job.ranks[1]->error(),
              HasSubstr("run tiny step 6: layer 0 expert 1: 8 lost tokens, but 9 by step 5"));
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(5));
}

}  // namespace
}  // namespace ckptd::testing
