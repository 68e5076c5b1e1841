#include "client/ctl/log_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ckptctl {
namespace {

Json commit(uint64_t step, uint64_t lineage, const char* name, Json forked_from = nullptr) {
  return {{"step", step},
          {"lineage", lineage},
          {"name", name},
          {"forked_from", std::move(forked_from)}};
}
Json fork_at(uint64_t step, uint64_t lineage) { return {{"step", step}, {"lineage", lineage}}; }

std::string drawn(const Json& log) {
  std::string text;
  for (const TreeLine& line : log_tree(log)) {
    text += line.drawing + (line.row ? log[*line.row]["name"].get<std::string>() : "") + "\n";
  }
  return text;
}

TEST(LogTree, OneLineageIsOneColumn) {
  EXPECT_EQ(drawn({commit(20, 1, "t@20"), commit(10, 1, "t@10")}), "* t@20\n* t@10\n");
  EXPECT_EQ(drawn(Json::array()), "");
}

TEST(LogTree, AbandonedCommitsAreDrawnBesideFork) {
  const Json log = {commit(100, 2, "t@100", fork_at(40, 1)),
                    commit(60, 2, "t@60", fork_at(40, 1)),
                    commit(80, 1, "t~1@80"),
                    commit(60, 1, "t~1@60"),
                    commit(40, 1, "t@40"),
                    commit(20, 1, "t@20")};
  EXPECT_EQ(drawn(log),
            "* t@100\n"
            "* t@60\n"
            "| * t~1@80\n"
            "| * t~1@60\n"
            "|/\n"
            "* t@40\n"
            "* t@20\n");
}

TEST(LogTree, ABranchMayHaveBranches) {
  const Json log = {commit(50, 4, "t@50", fork_at(10, 1)),
                    commit(60, 3, "t~3@60", fork_at(30, 2)),
                    commit(40, 2, "t~2@40", fork_at(20, 1)),
                    commit(30, 2, "t~2@30", fork_at(20, 1)),
                    commit(20, 1, "t~1@20"),
                    commit(10, 1, "t@10")};
  EXPECT_EQ(drawn(log),
            "* t@50\n"
            "| * t~3@60\n"
            "| | * t~2@40\n"
            "| |/\n"
            "| * t~2@30\n"
            "| * t~1@20\n"
            "|/\n"
            "* t@10\n");
}

TEST(LogTree, CommitWithUnlistedParentIsRoot) {
  EXPECT_EQ(drawn({commit(50, 2, "t@50", fork_at(40, 1)), commit(20, 3, "t~3@20")}),
            "* t@50\n* t~3@20\n");
}

// Each row is drawn once, whatever the answer holds.
TEST(LogTree, ContradictoryAnswersDrawEachRowOnce) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    Json log = Json::array();
    for (uint64_t rows = random() % 12; rows > 0; --rows) {
      if (random() % 10 == 0) {
        log.push_back(random() % 2 == 0 ? Json("text") : Json(nullptr));
      } else {
        log.push_back(
            commit(random() % 4, random() % 4, "t@1", fork_at(random() % 4, random() % 4)));
      }
    }
    std::multiset<size_t> rows;
    for (const TreeLine& line : log_tree(log)) {
      if (line.row) rows.insert(*line.row);
    }
    std::multiset<size_t> wanted;
    for (size_t i = 0; i < log.size(); ++i) wanted.insert(i);
    EXPECT_EQ(rows, wanted) << log;
  }
  EXPECT_TRUE(log_tree("text").empty());
}

}  // namespace
}  // namespace ckptctl
