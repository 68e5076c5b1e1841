// A shortage is not damage, and a read error is not an empty result: answers of queries, verify,
// scrub and restores while the catalog or a segment cannot be read, and afterwards.
#include <gmock/gmock.h>

#include <cerrno>

#include "ckptd/io/store_paths.h"
#include "tests/ckptd/daemon/saved_run_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr char kTinyTarget[] = R"({"target": "tiny"})";

class ShortageTest : public SavedRunTest {
 protected:
  ShortageTest() : SavedRunTest({.scrub_bytes_per_second = 1 << 30}) {}
  // Every read of the catalog fails like this from now on.
  void break_catalog(ckpt::ErrorCode code) {
    world.catalog().set_reads(ckpt::make_error(code, "catalog: what the test says"));
  }
  void refuse_segments(int error) {
    world.disk().set_faults(
        {.path_prefix = "segments/", .refused_open = 1, .refused_read = 1, .refusal = error});
  }
};

// Regression: verify reported 0 bytes of 0 commits without errors.
TEST_F(ShortageTest, DamagedCatalogIsRebuiltBeforeQuery) {
  for (const char* verb : {"log", "show", "verify", "unit", "runs", "prune"}) {
    const std::string args = std::string(verb) == "unit"
                                 ? R"({"target": "tiny", "unit": ")" + job.model[0].name + R"("})"
                             : std::string(verb) == "prune"
                                 ? R"({"target": "tiny", "dry_run": true, "rules": {"last": 9}})"
                             : std::string(verb) == "runs" ? "{}"
                                                           : kTinyTarget;
    const auto before = root().query(verb, args);
    break_catalog(ckpt::ErrorCode::kCorrupt);
    const auto after = root().query(verb, args);
    EXPECT_EQ(after.exit_code, 0) << verb << ": " << after.json;
    EXPECT_EQ(after.json, before.json) << verb;
  }
  break_catalog(ckpt::ErrorCode::kIo);
  job.expect_restores(*job.ranks[0], 10);
}

// Regression: the answers were "no such commit" or "no version in this view", with exit 3 or 4.
TEST_F(ShortageTest, UnreadableCatalogBlamesNoCommit) {
  FakeTrainer& asker = root();
  break_catalog(ckpt::ErrorCode::kUnavailable);  // descriptors, say
  const auto verified = asker.query("verify", kTinyTarget);
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_EQ(Json::parse(verified.json).value("errors", Json()), Json::array()) << verified.json;
  EXPECT_THAT(verified.json, HasSubstr(R"("unit":"catalog")"));
  for (const char* verb : {"log", "show", "schema"}) {
    const auto answer = root().query(verb, kTinyTarget);
    EXPECT_EQ(answer.exit_code, 1) << verb << ": " << answer.json;
    EXPECT_THAT(answer.json, HasSubstr("the catalog cannot be read")) << verb;
  }
  EXPECT_THAT(job.ranks[0]->restore(job.whole(10)).error, HasSubstr("the catalog cannot be read"));
  world.catalog().set_reads({});
  for (int i = 0; i < 10; ++i) world.tick(1s);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(10, 5));
  job.expect_restores(*job.ranks[0], 10);
}

TEST_F(ShortageTest, UnreadableCatalogRefusesResume) {
  break_catalog(ckpt::ErrorCode::kUnavailable);
  for (ckpt::Rank rank = 0; rank < 2; ++rank) {
    job.ranks[rank]->join(rank, 2, fb::ResumeMode::Continue);
  }
  world.run();
  EXPECT_FALSE(job.ranks[0]->started()) << "it cannot be known what to resume from";
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("the catalog cannot be read"));
  world.catalog().set_reads({});
  for (int i = 0; i < 10; ++i) world.tick(1s);
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
}

// Regression: 156 units were reported damaged, and an older version was restored.
TEST_F(ShortageTest, UnreadableSegmentIsNotDamage) {
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  for (const int error : {EACCES, EMFILE, ENOMEM}) {
    refuse_segments(error);
    const auto verified = root().query("verify", kTinyTarget);
    const auto restored = job.ranks[0]->restore(job.whole(10));
    world.disk().set_faults({});
    EXPECT_EQ(verified.exit_code, 1) << verified.json;
    EXPECT_EQ(Json::parse(verified.json).at("errors"), Json::array());
    EXPECT_FALSE(Json::parse(verified.json).at("unchecked").empty());
    EXPECT_THAT(restored.error, HasSubstr("could not be read"));
    EXPECT_THAT(restored.notes, ::testing::Each(""));
    job.expect_restores(*job.ranks[0], 10);
  }
}

TEST_F(ShortageTest, ScrubDoesNotReportUnreadableAsDamage) {
  refuse_segments(EMFILE);
  const auto begun = root().query("scrub", R"({"start": true})");
  ASSERT_EQ(begun.exit_code, 0) << begun.json;
  Json scrub;
  for (int i = 0; i < 200 && scrub.is_null(); ++i) {
    world.tick(1s);
    world.run();
    const Json now = Json::parse(root().query("scrub", "{}").json);
    if (!now.at("last_pass").is_null()) scrub = now;
  }
  ASSERT_FALSE(scrub.is_null()) << "the pass came to its end";
  EXPECT_EQ(scrub.at("errors"), Json::array());
  EXPECT_GT(scrub.at("last_pass").at("unchecked"), 0);
  EXPECT_THAT(scrub.at("last_pass").at("unchecked_reason").get<std::string>(),
              HasSubstr("Too many open files"));
  // The place is named once.
  EXPECT_THAT(scrub.at("last_pass").at("unchecked_reason").get<std::string>(),
              ::testing::Not(HasSubstr(": segment ")));
  EXPECT_EQ(root().query("scrub", "{}").exit_code, 1);
  EXPECT_THAT(world.daemon().health_answer().text,
              ::testing::AllOf(HasSubstr("unchecked_data for "), HasSubstr("ckptctl scrub")));
}

}  // namespace
}  // namespace ckptd::testing
