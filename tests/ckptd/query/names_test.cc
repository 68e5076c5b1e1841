// Names of commits: what the log prints names every commit that it lists, whatever was resumed.
#include <random>
#include <set>

#include "tests/ckptd/query/query_fixture.h"

namespace ckptd {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

ViewPoint point_of(const json& document) { return {document["lineage"], document["step"]}; }

class NamesTest : public QueryTest {
 protected:
  json log(const json& more = json::object()) {
    json question = {{"target", "tiny"}};
    question.update(more);
    return ask("log", question);
  }
  // Trains on: a new lineage from a random commit, with a few commits after the fork.
  void resume_at_random(std::mt19937_64& random) {
    const json commits = log();
    const json& from = commits[random() % commits.size()];
    const auto lineage = catalog_.run("tiny")->current_lineage + 1;
    add(lineage_opened(lineage, from["lineage"], from["step"]));
    ckpt::Step step = from["step"];
    if (random() % 4 == 0) commit({lineage, step}, {0, 4}, false);  // of the fork's step, too
    for (uint64_t more = random() % 4; more > 0; --more) {
      step += 5;
      commit({lineage, step}, all_units(units_), true);
    }
  }
};

TEST_F(NamesTest, ListedNameFindsItsCommit) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    resume_at_random(random);
    const json all = log({{"lineages", "all"}});
    EXPECT_EQ(all, log()) << "the name of a run means all of it";
    std::set<std::string> names;
    for (const json& commit : all) {
      const std::string name = commit["name"];
      EXPECT_TRUE(names.insert(name).second) << name << " names two commits";
      EXPECT_EQ(point_of(ask("show", {{"target", name}})), point_of(commit)) << name;
      EXPECT_EQ(point_of(ask("restore-plan", {{"target", name}})), point_of(commit)) << name;
      const std::string in_full = fmt::format("tiny~{}@{}", commit["lineage"].get<uint32_t>(),
                                              commit["step"].get<uint64_t>());
      EXPECT_EQ(point_of(ask("show", {{"target", in_full}})), point_of(commit)) << in_full;
      const auto tag = parse_tag_args(context_, json{{"target", name}, {"tag", "x"}}.dump());
      ASSERT_TRUE(tag.ok()) << tag.error().message;
      EXPECT_EQ(tag->target.point, point_of(commit)) << name;
      const auto rm = parse_remove_args(context_, json{{"target", name}}.dump());
      ASSERT_TRUE(rm.ok()) << rm.error().message;
      EXPECT_EQ(rm->point, point_of(commit)) << name;
    }
  }
}

TEST_F(NamesTest, CurrentLineAndOtherLineagesFormTheLog) {
  std::mt19937_64 random(7);
  for (int resumes = 0; resumes < 20; ++resumes) {
    resume_at_random(random);
    const json line = log({{"lineages", "line"}});
    const json others = log({{"lineages", "others"}});
    EXPECT_EQ(line.size() + others.size(), log().size());
    for (size_t i = 1; i < line.size(); ++i) EXPECT_LE(line[i]["step"], line[i - 1]["step"]);
    for (const json& commit : line) {
      const std::string name = commit["name"];
      EXPECT_EQ(log({{"target", name}})[0], commit) << "a commit's log begins with it";
    }
  }
}

TEST_F(NamesTest, ErrorNamesOtherLineagesOfTheStep) {
  commit({2, 20}, all_units(units_), true);
  add(lineage_opened(3, 1, 10));
  for (const char* verb : {"show", "experts", "restore-plan", "log"}) {
    expect_error(verb, {{"target", "tiny@20"}}, 3,
                 "run tiny step 20: no commit at this step in lineage 3; another lineage has it: "
                 "tiny~2@20");
  }
  expect_error("show", {{"target", "tiny@15"}}, 3, "others have it: tiny~2@15, tiny~1@15");
  expect_error("show", {{"target", "tiny~3@15"}}, 3, "others have it: tiny~2@15, tiny~1@15");
  expect_error("diff", {{"from", "tiny@10"}, {"to", "tiny@20"}}, 3, "tiny~2@20");
  const auto pin = parse_pin_args(context_, R"({"target": "tiny@20"})");
  ASSERT_FALSE(pin.ok());
  EXPECT_THAT(pin.error().message, HasSubstr("tiny~2@20"));
  add(deleted({2, 20}, "retention"));
  const json gone = ask("show", {{"target", "tiny@20"}}, 3);
  EXPECT_EQ(gone["error"],
            "run tiny step 20: no commit at this step in lineage 3; `ckptctl log tiny` lists its "
            "commits");
}

TEST_F(NamesTest, ErrorNamesBoundedNumberOfLineages) {
  for (ckpt::LineageId lineage = 3; lineage < 20; ++lineage) {
    add(lineage_opened(lineage, 1, 10));
    commit({lineage, 25}, {4}, false);
  }
  add(lineage_opened(20, 1, 10));
  expect_error("show", {{"target", "tiny@25"}}, 3,
               "others have it: tiny~19@25, tiny~18@25, tiny~17@25 and more (`ckptctl log --all`");
}

TEST_F(NamesTest, UnitListsVersionsOfTheView) {
  const json unit = ask("unit", {{"target", "tiny@15"}, {"unit", "trainer"}});
  ASSERT_EQ(unit["versions"].size(), 3u);
  EXPECT_EQ(point_of(unit["versions"][0]), (ViewPoint{2, 15}));
  EXPECT_EQ(point_of(unit["versions"][2]), (ViewPoint{1, 5}));
  EXPECT_EQ(ask("unit", {{"target", "tiny@best"}, {"unit", "trainer"}})["versions"].size(), 2u);
}

TEST_F(NamesTest, AnyNameOfCommitRemovesItsTag) {
  const auto removed = [&](const json& args) {
    json question = {{"remove", true}};
    question.update(args);
    return parse_tag_args(context_, question.dump());
  };
  for (const json& args : {json{{"target", "tiny@best"}}, json{{"target", "tiny"}, {"tag", "best"}},
                           json{{"target", "tiny~1@10"}, {"tag", "best"}}}) {
    const auto change = removed(args);
    ASSERT_TRUE(change.ok()) << args << change.error().message;
    EXPECT_EQ(change->tag, "best");
  }
  const auto of_another = removed({{"target", "tiny~1@15"}, {"tag", "best"}});
  ASSERT_FALSE(of_another.ok());
  EXPECT_EQ(of_another.error().message, "run tiny: tag best is of tiny~1@10, not of tiny~1@15");
  EXPECT_FALSE(removed({{"target", "tiny@worst"}}).ok());
  EXPECT_FALSE(removed({{"target", "tiny"}}).ok());
}

TEST_F(NamesTest, RefusalsNameTheCommitWithItsLineage) {
  const auto unpinned = parse_pin_args(context_, R"({"target": "tiny~1@10", "remove": true})");
  ASSERT_FALSE(unpinned.ok());
  EXPECT_EQ(unpinned.error().message, "tiny~1@10: it is not pinned");
  add(commit_damaged({1, 5}, "its header"));
  const auto tag = parse_tag_args(context_, R"({"target": "tiny~1@5", "tag": "good"})");
  ASSERT_FALSE(tag.ok());
  EXPECT_EQ(tag.error().message, "tiny~1@5: damaged: its header");
}

TEST_F(NamesTest, VerifyAndRemoveRefuseWholeLineage) {
  const auto target = parse_verify_args(context_, R"({"target": "tiny~1"})");
  ASSERT_FALSE(target.ok());
  EXPECT_EQ(target.error().message,
            "verify takes a run or a commit, not the lineage tiny~1: name tiny, or tiny~1@STEP");
  const auto removal = parse_remove_args(context_, R"({"target": "tiny~1"})");
  ASSERT_FALSE(removal.ok());
  EXPECT_THAT(removal.error().message, testing::StartsWith("rm takes a run or a commit, not"));
}

}  // namespace
}  // namespace ckptd
