// Runs whose ranks are on nodes: all ranks of a node are lost together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class DomainsTest : public ContinueTest {
 protected:
  // Flags of a run with these nodes.
  Flags on_nodes(const std::string& csv) const {
    std::ofstream(nodes_) << csv;
    return {"--domains", nodes_};
  }
  static void expect_nothing_lost(const json& failure) {
    EXPECT_EQ(failure.at("bytes").at("memory"), 0) << failure.dump();
    EXPECT_EQ(failure.at("bytes").at("disk"), 0);
    EXPECT_EQ(failure.at("lost_tokens"), 0);
  }

  const std::string nodes_ = folder_ / "nodes.csv";
  const Flags every_fourth_ = {"--checkpoint-every", "4"};
};

// Eight experts, two replicas each, and no slot to spare.
TEST_F(DomainsTest, LostNodeLosesNoExpert) {
  const Flags killed = twice_ + every_fourth_ + Flags{"--kill", "2@7", "--kill", "3@7"};
  const json report =
      run_continued("node.json", "4", on_nodes("rank,node\n0,a\n1,a\n2,b\n3,b\n") + killed);
  EXPECT_THAT(last_error_output_, Not(HasSubstr("names no node")));
  EXPECT_THAT(last_error_output_, HasSubstr("with 2 ranks (epoch 2, each expert on 1 node)"));
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  EXPECT_EQ(report["failures"][0].at("group"), 2);
  expect_nothing_lost(report["failures"][0]);
  EXPECT_EQ(report.at("plt"), 0);
  expect_undisturbed(report);

  const json each_by_itself = run_continued("ranks.json", "4", killed);
  EXPECT_GT(each_by_itself.at("plt"), 0) << "else the nodes need not have been known";
}

// Rank 1 is lost, and rank 4 joins on its node. In the group rank 4 is the last, and ranks 2 and 3,
// which fail together, are in the middle.
TEST_F(DomainsTest, FollowProcessesThroughLossAndJoin) {
  WatchedRun run = watch("follow.json", "4",
                         on_nodes("0,a\n1,a\n2,b\n3,b\n4,a\n") + twice_ + every_fourth_ +
                             Flags{"--kill", "1@3", "--join", "1@4", "--check-replicas", "1"});
  ASSERT_TRUE(run.await_group(4));
  // Both are stopped before either is killed, so that neither continues without the other.
  ASSERT_TRUE(run.signal_rank(2, SIGSTOP));
  ASSERT_TRUE(run.signal_rank(3, SIGSTOP));
  ASSERT_TRUE(run.signal_rank(2, SIGKILL));
  ASSERT_TRUE(run.signal_rank(3, SIGKILL));
  EXPECT_TRUE(run.await_group(2));
  const Ended ended = run.stop();
  const json report = read_report("follow.json");
  ASSERT_EQ(report.at("changes").size(), 1u) << ended.err;
  EXPECT_EQ(report["changes"][0].at("joined"), json({4}));
  EXPECT_EQ(report["changes"][0].at("effective_replicas"), 2) << "nodes";
  ASSERT_EQ(report.at("failures").size(), 2u) << ended.err;
  EXPECT_THAT(report["failures"][1].at("ranks"), testing::UnorderedElementsAre(2, 3));
  expect_nothing_lost(report["failures"][1]);
  expect_undisturbed(report);
}

// The first run plans for independent ranks, the resumed run for nodes.
TEST_F(DomainsTest, ResumePlansForItsNodes) {
  const Flags kept = twice_ + every_fourth_ + Flags{"--data-dir", folder_ / "data"};
  const Ended first = run(program_, continue_flags("first.json", "4", "4", kept));
  ASSERT_EQ(first.code(), 0) << first.err;
  const json report =
      run_continued("resumed.json", "4",
                    kept + on_nodes("0,a\n2,b\n3,b\n1,a\n") +
                        Flags{"--resume", "latest", "--kill", "2@7", "--kill", "3@7"});
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  expect_nothing_lost(report["failures"][0]);
}

TEST_F(DomainsTest, RefusesInvalidDomainsBeforeStart) {
  const auto refusal = [&](const Flags& flags) {
    const Ended ended = run("moetrain", continue_flags("none.json", "4", "12", flags));
    EXPECT_EQ(ended.code(), 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refusal({"--domains", folder_ / "none.csv"}), HasSubstr("none.csv: cannot be"));
  EXPECT_THAT(refusal(on_nodes("rank,node\n0,a\n0,b\n")),
              HasSubstr("nodes.csv line 3: rank 0 has a line already"));
  EXPECT_THAT(refusal(on_nodes("0,a\n1\n")), HasSubstr("nodes.csv line 2: rank 1 has no node"));
  EXPECT_THAT(refusal(on_nodes("rank,node\n")), HasSubstr("nodes.csv: has no line rank,node"));
  EXPECT_THAT(refusal(on_nodes("0,a\n1,a\n2,a\n3,a\n") + twice_),
              HasSubstr("replicas of every expert in 2 distinct failure domains; 1 domains of"));
}

TEST_F(DomainsTest, UnnamedProcessIsItsOwnNode) {
  const json report = run_continued("unnamed.json", "3", on_nodes("1,a\n"));
  EXPECT_THAT(last_error_output_, HasSubstr("nodes.csv names no node of ranks 0, 2: each"));
  expect_undisturbed(report);
}

}  // namespace
}  // namespace systemtest
