// Tokens that experts would lose if a view were restored, and tokens that they have lost.
#include <gtest/gtest.h>

#include "tests/ckptd/query/query_fixture.h"

namespace ckptd {
namespace {

using nlohmann::json;

// Lineage 1 counts to step 20. Lineage 2 forks at 10, where expert 1 had 40 tokens, and counts on
// from there. Counts of lineage 1 after the fork never show in lineage 2.
class LostTokensTest : public QueryTest {
 protected:
  void SetUp() override {
    add(store_opened());
    add(run_created());
    add(units_registered(units_));
    add(lineage_opened(1, 0, 0));
    commit_tokens({1, 5}, all_units(units_), 10, 20);
    commit_tokens({1, 10}, {0, 1, 4}, 15, 40);
    commit_tokens({1, 20}, {0, 1, 4}, 100, 900);
    add(lineage_opened(2, 1, 10));
    commit_tokens({2, 12}, {0, 4}, 18, 47);  // of expert 0 only the weights
  }
  void commit_tokens(ViewPoint point, std::vector<ckpt::UnitId> units, uint64_t expert0,
                     uint64_t expert1) {
    const bool full = units.size() == units_.size();
    add(committed({.point = point,
                   .units = std::move(units),
                   .full = full,
                   .tokens = {{0, 0, expert0}, {0, 1, expert1}},
                   .metrics = {{"plt", 0.25}}},
                  units_));
  }
  json lost(const std::string& target, const std::string& field = "lost_tokens") {
    json list = json::array();
    const json document = ask("experts", {{"target", target}});
    for (const json& expert : document["layers"][0]["experts"]) list.push_back(expert[field]);
    return list;
  }
  json lost_so_far(const std::string& target) { return lost(target, "lost_so_far"); }
};

TEST_F(LostTokensTest, IsDifferenceOfTokenCounts) {
  EXPECT_EQ(lost("tiny~1@5"), json::parse("[0, 0]"));
  EXPECT_EQ(lost("tiny~1@10"), json::parse("[0, 20]"));
  EXPECT_EQ(lost("tiny~1@20"), json::parse("[0, 880]"));
}

TEST_F(LostTokensTest, FollowsLineageAndOlderPartOfExpert) {
  // Expert 0's optimizer is of step 10 (15 tokens). Expert 1 is of step 5 (20 tokens).
  EXPECT_EQ(lost("tiny~2@12"), json::parse("[3, 27]"));
  const json view = ask("show", {{"target", "tiny~2@12"}});
  EXPECT_EQ(view["units"][0]["lost_tokens"], 0) << "the weights are new";
  EXPECT_EQ(view["units"][1]["lost_tokens"], 3);
  EXPECT_EQ(view["units"][2]["lost_tokens"], 27);
  EXPECT_EQ(view["units"][4]["lost_tokens"], nullptr) << "no expert";
}

TEST_F(LostTokensTest, IsNullIfCountsAreMissing) {
  commit({2, 14}, {4}, false);
  EXPECT_EQ(lost("tiny~2@14"), json::parse("[null, null]")) << "the view's commit has none";
  add(committed({.point = {2, 16}, .units = {0, 1, 4}, .tokens = {{0, 1, 60}}}, units_));
  EXPECT_EQ(lost("tiny~2@16"), json::parse("[0, 40]"));
  add(committed({.point = {2, 18}, .units = {4}, .tokens = {{0, 0, 30}, {0, 1, 10}}}, units_));
  EXPECT_EQ(lost("tiny~2@18"), json::parse("[null, null]")) << "not counted then; contradiction";
}

// No tokens are lost by step 14. After step 15 expert 1 is restored from step 14, without 8 of its
// tokens.
TEST_F(LostTokensTest, TokensLostByRecoveryCountOnce) {
  add(committed({.point = {2, 14},
                 .units = all_units(units_),
                 .tokens = {{0, 0, 18}, {0, 1, 47}},
                 .metrics = {{"plt", 0}}},
                units_));
  const auto commit_lost = [&](ckpt::Step step, uint64_t expert1) {
    add(committed({.point = {2, step},
                   .units = {0, 1, 4},
                   .tokens = {{0, 0, 20}, {0, 1, expert1}},
                   .lost = {{0, 1, 8}},
                   .metrics = {{"plt", 0.4}}},
                  units_));
  };
  commit_lost(16, 55);
  EXPECT_EQ(lost("tiny~2@16"), json::parse("[0, 0]")) << "step 14 has all that expert 1 holds";
  EXPECT_EQ(lost_so_far("tiny~2@16"), json::parse("[0, 8]"));
  commit_lost(18, 60);
  EXPECT_EQ(lost("tiny~2@18"), json::parse("[0, 5]"));
  EXPECT_EQ(lost_so_far("tiny~2@18"), json::parse("[0, 8]"));
  EXPECT_EQ(lost_so_far("tiny~2@14"), json::parse("[0, 0]"));
  EXPECT_EQ(ask("log", {{"target", "tiny"}})[0]["lost_so_far"], 8);
  commit_tokens({2, 20}, {0, 1, 4}, 22, 70);
  EXPECT_EQ(lost("tiny~2@20"), json::parse("[0, null]")) << "only one of the two says what is lost";
}

TEST_F(LostTokensTest, LostSoFarIsNullWithoutTrainerReport) {
  EXPECT_EQ(lost_so_far("tiny~2@12"), json::parse("[null, null]")) << "some, nobody says whose";
  EXPECT_EQ(ask("log", {{"target", "tiny"}})[0]["lost_so_far"], nullptr);
  add(committed({.point = {2, 14},
                 .units = {0, 1, 4},
                 .tokens = {{0, 0, 18}, {0, 1, 50}},
                 .metrics = {{"plt", 0}}},
                units_));
  EXPECT_EQ(lost_so_far("tiny~2@14"), json::parse("[0, 0]"));
  EXPECT_EQ(ask("log", {{"target", "tiny"}})[0]["lost_so_far"], 0);
  add(committed({.point = {2, 16}, .units = {4}, .tokens = {{0, 1, 60}}, .metrics = {{"plt", 0}}},
                units_));
  EXPECT_EQ(lost_so_far("tiny~2@16"), json::parse("[null, 0]")) << "expert 0 is not counted";
}

TEST_F(LostTokensTest, LogHasPltReportedByTheTrainer) {
  for (const json& commit : ask("log", {{"target", "tiny"}})) EXPECT_EQ(commit["plt"], 0.25);
}

}  // namespace
}  // namespace ckptd
