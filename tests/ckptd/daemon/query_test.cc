// Queries that the daemon itself answers, and metrics.
#include <gmock/gmock.h>

#include "ckptd/observe/metrics_text.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;

class QueryTest : public ::testing::Test {
 protected:
  QueryTest() : world({}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
  }
  nlohmann::json ask(const std::string& verb, const std::string& args, int exit_code = 0) {
    const auto reply = job.ranks[0]->query(verb, args);
    EXPECT_EQ(reply.exit_code, exit_code) << reply.json;
    return nlohmann::json::parse(reply.json);
  }
  World world;
  Job job;
};

TEST_F(QueryTest, VerifyReadsEverything) {
  job.commit(5);
  job.commit(6);
  const auto report = ask("verify", "");
  uint64_t bytes = 0;
  for (const auto& unit : job.model) bytes += 2 * unit.bytes;
  EXPECT_GE(report.at("checked_bytes"), bytes);
  EXPECT_TRUE(report.at("errors").empty());
  EXPECT_EQ(ask("verify", R"({"target": "nobody"})", 3).contains("error"), true);
}

TEST_F(QueryTest, VerifyEndsWhenAskerDies) {
  job.commit(5);
  fb::QueryT query;
  query.verb = "verify";
  job.ranks[1]->send(std::move(query));
  job.ranks[1]->die();
  world.run();
  EXPECT_TRUE(ask("verify", "").at("errors").empty());
}

TEST_F(QueryTest, TagsAreSetMovedAndRemoved) {
  job.commit(5);
  job.commit(6);
  EXPECT_FALSE(ask("tag", R"({"target": "tiny@6", "tag": "good"})").contains("moved_from"));
  const auto moved = ask("tag", R"({"target": "tiny@5", "tag": "good"})");
  EXPECT_EQ(moved.at("step"), 5);
  EXPECT_EQ(moved.at("moved_from").at("step"), 6);
  EXPECT_FALSE(ask("tag", R"({"target": "tiny@5", "tag": "good"})").contains("moved_from"));
  EXPECT_EQ(ask("log", R"({"target": "tiny"})").at(1).at("tags").at(0), "good");
  ask("tag", R"({"target": "tiny@7", "tag": "bad"})", 3);
  EXPECT_EQ(ask("tag", R"({"target": "tiny", "tag": "good", "remove": true})").at("removed"), true);
  EXPECT_TRUE(ask("log", R"({"target": "tiny"})").at(1).at("tags").empty());
  ask("tag", R"({"target": "tiny", "tag": "good", "remove": true})", 3);
}

TEST_F(QueryTest, StatusListsSessions) {
  const auto status = ask("status", "");
  EXPECT_EQ(status.at("state"), "ready");
  EXPECT_EQ(status.at("sessions").size(), 2u);
  EXPECT_EQ(status.at("sessions")[1].at("rank"), 1);
  EXPECT_EQ(status.at("engine"), "memory");
}

TEST_F(QueryTest, MetricsCountCommits) {
  job.commit(5);
  const std::string text = world.daemon().metrics_text();
  EXPECT_THAT(text, HasSubstr("\nckptd_commits_total 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE ckptd_slabs gauge\n"));
  EXPECT_THAT(text, HasSubstr("ckptd_slabs{state=\"durable\"}"));
  EXPECT_EQ(text.find("# TYPE ckptd_slabs gauge"), text.rfind("# TYPE ckptd_slabs gauge"));
}

TEST(MetricsText, EscapesLabels) {
  MetricsText text;
  text.gauge("a", "help", 1.5, {{"l", "q\"b\\n\n"}});
  EXPECT_EQ(text.text(), "# HELP a help\n# TYPE a gauge\na{l=\"q\\\"b\\\\n\\n\"} 1.5\n");
}

}  // namespace
}  // namespace ckptd::testing
