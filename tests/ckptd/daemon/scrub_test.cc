// Scrub through the daemon: the damage that it finds, the extents that it skips, the work that has
// priority over it, and the place where it resumes. Virtual time.
#include "ckptd/limits.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kRate = 1u << 20;

class ScrubTest : public PruneTest {
 protected:
  explicit ScrubTest(std::chrono::milliseconds interval = {})
      : PruneTest({.segment_bytes = 768u << 10,
                   .scrub_bytes_per_second = kRate,
                   .scrub_interval = interval}) {}
  // Advances the time in ticks, and runs the daemon after each.
  void advance(std::chrono::milliseconds time) {
    for (; time.count() > 0; time -= std::chrono::milliseconds(100)) {
      world.tick(std::chrono::milliseconds(100));
      world.run();
    }
  }
  Json scrub(const std::string& args = "{}", int exit_code = 0, uid_t uid = 0) {
    FakeTrainer asker(world, {.uid = uid, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(asker.connect());
    const auto reply = asker.query("scrub", args);
    EXPECT_EQ(reply.exit_code, exit_code) << reply.json;
    asker.die();
    return Json::parse(reply.json);
  }
  uint64_t begin_pass() { return scrub(R"({"start": true})").at("begun"); }
  // Runs the pass to its end. Returns the answer to `scrub`.
  Json finish_pass(int exit_code = 0) {
    advance(std::chrono::seconds(20));
    const Json document = scrub("{}", exit_code);
    EXPECT_TRUE(document.at("pass").is_null()) << document;
    return document;
  }
};

TEST_F(ScrubTest, RemedyNamesAMissingSegment) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const std::string path = fragment_place(world, 5, 3).first;
  ASSERT_TRUE(world.disk().remove(path).ok());
  advance(std::chrono::seconds(3));
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const Json conditions = Json::parse(root.query("status", "{}").json).at("conditions");
  ASSERT_EQ(conditions.size(), 1u) << conditions;
  EXPECT_THAT(conditions[0].at("remedy").get<std::string>(),
              HasSubstr("put " + path + " back; list them with ckptctl scrub --status"));
}

TEST_F(ScrubTest, DamageInNewCommitIsReportedSoon) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const auto [path, offset] = fragment_place(world, 5, 3);
  world.disk().flip(path, offset + 11);
  advance(std::chrono::seconds(3));
  const Json found = scrub("{}", 4);
  ASSERT_EQ(found.at("errors").size(), 1u) << found;
  EXPECT_EQ(found.at("errors")[0].at("run"), "tiny");
  EXPECT_EQ(found.at("errors")[0].at("step"), 5);
  EXPECT_EQ(found.at("errors")[0].at("unit"), job.model[3].name);
  EXPECT_THAT(found.at("errors")[0].at("reason"), HasSubstr("segment 1 offset"));
  EXPECT_TRUE(found.at("last_pass").is_null());
  EXPECT_EQ(world.metric("ckptd_scrub_errors_total"), 1u);
  EXPECT_EQ(world.metric("ckptd_scrub_damaged_units"), 1u);
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), 0u);
  EXPECT_EQ(ask(job, "status", "{}").at("scrub").at("damaged_units"), 1);
}

TEST_F(ScrubTest, DamageMetByARestoreIsRecorded) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  advance(std::chrono::seconds(3));  // both are read back, and are sound
  const auto [path, offset] = fragment_place(world, 10, 3);
  world.kill_daemon();  // memory must not serve the restore
  ASSERT_TRUE(world.start().ok());
  world.disk().flip(path, offset + 11);
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->restore(job.whole(10)).error, "");
  advance(std::chrono::seconds(3));
  const Json found = scrub("{}", 4);
  ASSERT_EQ(found.at("errors").size(), 1u) << found;
  EXPECT_EQ(found.at("errors")[0].at("step"), 10);
}

TEST_F(ScrubTest, FrequentCommitsWaitForPause) {
  Job job(world, 1);
  job.start();
  constexpr std::chrono::milliseconds kStep{400};
  ckpt::Step step = 0;
  const auto commit_for = [&](std::chrono::milliseconds time) {
    for (; time.count() > 0; time -= kStep) {
      job.commit(++step);
      advance(kStep);
    }
  };
  commit_for(limits::kScrubNewEvery - 2 * kStep);
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), step);
  EXPECT_EQ(world.metric("ckptd_scrub_bytes_total"), 0u);
  // Without a pause scrub still reads one new commit now and then.
  commit_for(limits::kScrubNewEvery);
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), step - 1);
  commit_for(limits::kScrubNewEvery);
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), step - 2);
  advance(limits::kScrubNewAfter + std::chrono::seconds(60));
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), 0u);
}

TEST_F(ScrubTest, RestartedDaemonScrubsUnreadNewCommits) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const auto [path, offset] = fragment_place(world, 5, 3);
  advance(std::chrono::seconds(3));
  job.commit(10);
  const auto [newer_path, newer_offset] = fragment_place(world, 10, 3);
  restart();
  world.disk().flip(path, offset);
  world.disk().flip(newer_path, newer_offset);
  advance(std::chrono::seconds(3));
  const Json found = scrub("{}", 4);
  ASSERT_EQ(found.at("errors").size(), 1u) << "5 was read back before: " << found;
  EXPECT_EQ(found.at("errors")[0].at("step"), 10);
}

TEST_F(ScrubTest, CommitReadByPassIsNotScrubbedAgain) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), 1u);
  begin_pass();
  advance(std::chrono::milliseconds(500));
  EXPECT_EQ(scrub().at("last_pass").at("commits"), 1);
  EXPECT_EQ(world.metric("ckptd_scrub_commits_waiting"), 0u);
  const auto [path, offset] = fragment_place(world, 5, 3);
  restart();
  world.disk().flip(path, offset);
  advance(std::chrono::seconds(60));
  EXPECT_TRUE(scrub().at("errors").empty()) << "that is the next pass's to find";
}

TEST_F(ScrubTest, DamageStaysReportedUntilCleanPass) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.commit(10);
  advance(std::chrono::seconds(3));
  const auto [path, offset] = fragment_place(world, 10, 2);
  world.disk().flip(path, offset);
  EXPECT_EQ(begin_pass(), 1u);
  const Json found = finish_pass(4);
  EXPECT_EQ(found.at("errors").size(), 1u) << found;
  EXPECT_EQ(found.at("errors")[0].at("step"), 10);
  EXPECT_EQ(found.at("last_pass").at("commits"), 2);
  EXPECT_GT(found.at("last_pass").at("checked_bytes"), 2 * 331'000);
  restart();
  EXPECT_EQ(scrub("{}", 4).at("errors"), found.at("errors")) << "it is remembered";
  world.disk().flip(path, offset);
  EXPECT_EQ(begin_pass(), 2u);
  EXPECT_THAT(finish_pass().at("errors"), IsEmpty());
}

// Damage known before the pass must neither keep new findings out, nor hide them once repaired.
TEST_F(ScrubTest, FullDamageListDoesNotHideRest) {
  Job job(world, 1);
  job.start();
  std::vector<std::pair<std::string, uint64_t>> places;
  const auto flip_all = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) world.disk().flip(places[i].first, places[i].second);
  };
  for (ckpt::Step step = 1; places.size() < limits::kScrubDamagesMax + 4; ++step) {
    job.commit(step);
    advance(std::chrono::seconds(1));
    for (ckpt::UnitId unit = 0; unit < job.model.size(); ++unit) {
      places.push_back(fragment_place(world, step, unit));
    }
  }
  const size_t left_out = places.size() - limits::kScrubDamagesMax;
  for (int i = 0; i < 300 && world.metric("ckptd_scrub_commits_waiting") > 0; ++i) {
    advance(std::chrono::seconds(1));
  }
  ASSERT_EQ(world.metric("ckptd_scrub_commits_waiting"), 0u);
  flip_all(0, places.size());
  begin_pass();
  advance(std::chrono::seconds(40));
  const Json full = finish_pass(4);
  EXPECT_EQ(full.at("errors").size(), limits::kScrubDamagesMax);
  EXPECT_EQ(full.at("errors_left_out"), left_out);
  EXPECT_EQ(world.metric("ckptd_scrub_damaged_units"), places.size());
  flip_all(0, limits::kScrubDamagesMax);  // the damage left is the part that the full list lacked
  begin_pass();
  advance(std::chrono::seconds(40));
  const Json rest = finish_pass(4);
  EXPECT_EQ(rest.at("errors").size(), left_out) << rest;
  flip_all(limits::kScrubDamagesMax, places.size());
  begin_pass();
  advance(std::chrono::seconds(40));
  const Json none = finish_pass(0);
  EXPECT_THAT(none.at("errors"), IsEmpty());
  EXPECT_FALSE(none.contains("errors_left_out"));
  // New damage, found first, takes the places of known damage. That is found again, and counts
  // once.
  for (const auto& [begin, end] : {std::pair(left_out, places.size()), {size_t{0}, left_out}}) {
    flip_all(begin, end);
    begin_pass();
    advance(std::chrono::seconds(40));
    finish_pass(4);
  }
  EXPECT_EQ(world.metric("ckptd_scrub_damaged_units"), places.size());
}

// Trainers commit faster than scrub may read.
TEST_F(ScrubTest, PassEndsDespiteNewCommits) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {1, 2, 3}) {
    job.commit(step);
    advance(std::chrono::seconds(1));
  }
  begin_pass();
  for (ckpt::Step step = 4; step < 104; ++step) {
    job.commit(step);
    advance(std::chrono::milliseconds(100));
  }
  EXPECT_GT(world.metric("ckptd_scrub_commits_waiting"), 20u)
      << "scrub is not faster than the trainers";
  const Json document = scrub();
  EXPECT_TRUE(document.at("pass").is_null()) << document;
  ASSERT_EQ(document.at("last_pass").at("number"), 1);
  EXPECT_EQ(document.at("last_pass").at("commits"), 3) << "those that there were";
}

// At any moment of a pass, a prune neither waits for the pass nor makes it report damage.
class PruneDuringScrub : public ScrubTest, public ::testing::WithParamInterface<int> {};

TEST_P(PruneDuringScrub, ReclaimedSpaceIsNotDamage) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  job.commit(10);
  commit_units(job, 15, {0, 2});
  commit_units(job, 20, {1});
  advance(std::chrono::seconds(3));
  begin_pass();
  advance(std::chrono::milliseconds(100) * GetParam());
  ask(job, "prune", kLast1);
  const Json gc = ask_root("gc", "{}");
  EXPECT_EQ(gc.at("deletions_waiting"), 0) << gc;
  const Json over = finish_pass();
  EXPECT_THAT(over.at("errors"), IsEmpty()) << over;
  EXPECT_EQ(world.metric("ckptd_scrub_errors_total"), 0u);
  EXPECT_GT(world.metric("ckptd_freed_bytes_total"), 331'000u);
  expect_view(job, 20, {15, 20, 15, 10});
}

INSTANTIATE_TEST_SUITE_P(Tenths, PruneDuringScrub, ::testing::Range(0, 16));

TEST_F(ScrubTest, PassResumesAfterRestart) {
  Job job(world, 1);
  job.start();
  for (ckpt::Step step = 1; step <= 6; ++step) job.commit(step);
  advance(std::chrono::seconds(5));
  begin_pass();
  const uint64_t whole = finish_pass().at("last_pass").at("checked_bytes");
  EXPECT_EQ(begin_pass(), 2u);
  advance(std::chrono::milliseconds(1'100));
  ASSERT_FALSE(scrub().at("pass").is_null());
  restart();
  const Json after = scrub().at("pass");
  EXPECT_EQ(after.at("number"), 2);
  EXPECT_GT(after.at("checked_bytes"), 0);
  const Json last = finish_pass().at("last_pass");
  EXPECT_EQ(last.at("number"), 2);
  EXPECT_EQ(last.at("commits"), 6);
  EXPECT_EQ(last.at("checked_bytes"), whole) << "nothing was left out, nothing counted twice";
  EXPECT_LT(world.metric("ckptd_scrub_bytes_total"), whole);
}

TEST_F(ScrubTest, RebuiltCatalogDropsPassInProgress) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  advance(std::chrono::seconds(3));
  begin_pass();
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  world.run();
  EXPECT_TRUE(scrub().at("pass").is_null());
  EXPECT_EQ(begin_pass(), 1u);
  EXPECT_EQ(finish_pass().at("last_pass").at("commits"), 1);
}

TEST_F(ScrubTest, ScrubYieldsToRestore) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  advance(std::chrono::seconds(3));
  begin_pass();
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  reader.send(job.whole(10));
  world.run();
  const double read = world.metric("ckptd_scrub_bytes_total");
  advance(limits::kScrubYieldMax - std::chrono::milliseconds(200));
  EXPECT_EQ(world.metric("ckptd_scrub_bytes_total"), read);
  EXPECT_EQ(scrub().at("state"), "yielding");
  // A restore that never ends does not stop scrub for ever.
  advance(2 * limits::kScrubYieldMax);
  const double trickled = world.metric("ckptd_scrub_bytes_total");
  EXPECT_GT(trickled, read);
  EXPECT_LE(trickled, read + 3 * 128 * 1024) << "an extent every ten seconds";
  reader.die();
  EXPECT_EQ(finish_pass().at("last_pass").at("commits"), 2);
}

TEST_F(ScrubTest, ScrubRespectsRateLimit) {
  Job job(world, 1);
  job.start();
  for (ckpt::Step step = 1; step <= 12; ++step) job.commit(step);
  advance(std::chrono::seconds(10));
  begin_pass();
  const double before = world.metric("ckptd_scrub_bytes_total");
  advance(std::chrono::seconds(2));
  const double read = world.metric("ckptd_scrub_bytes_total") - before;
  EXPECT_GT(read, 2 * kRate * 8 / 10);
  EXPECT_LT(read, 2 * kRate * 13 / 10);
  // A requested pass may have its own rate.
  scrub(fmt::format(R"({{"start": true, "bytes_per_second": {}}})", 100 * kRate));
  advance(std::chrono::milliseconds(300));
  EXPECT_EQ(scrub().at("last_pass").at("number"), 2);
}

TEST_F(ScrubTest, InvalidArgumentsAreRefused) {
  EXPECT_THAT(scrub(R"({"start": true, "bytes_per_second": 5})", 2).at("error"),
              HasSubstr("rate 5 B: at least 1.0 MiB"));
  EXPECT_THAT(scrub(R"({"bytes_per_second": 5000000})", 2).at("error"), HasSubstr("to start"));
  EXPECT_THAT(scrub(R"({"start": 1})", 2).at("error"), HasSubstr("start"));
  EXPECT_THAT(scrub(R"({"begin": true})", 2).at("error"), HasSubstr("unknown argument begin"));
  EXPECT_THAT(scrub(R"({"start": true})", 1, 4711).at("error"), HasSubstr("root"));
  EXPECT_TRUE(scrub().at("pass").is_null());
}

class ScrubEveryHour : public ScrubTest {
 protected:
  ScrubEveryHour() : ScrubTest(std::chrono::hours(1)) {}
};

TEST_F(ScrubEveryHour, APassBeginsWhenItIsDue) {
  advance(std::chrono::seconds(1));
  EXPECT_EQ(scrub().at("last_pass").at("number"), 1) << "the first one: nothing was there";
  Job job(world, 1);
  job.start();
  job.commit(5);
  advance(std::chrono::seconds(5));
  world.tick(std::chrono::minutes(50));
  advance(std::chrono::seconds(5));
  EXPECT_EQ(scrub().at("last_pass").at("number"), 1);
  world.tick(std::chrono::minutes(10));
  const Json last = finish_pass().at("last_pass");
  EXPECT_EQ(last.at("number"), 2);
  EXPECT_EQ(last.at("commits"), 1);
}

class NoScrub : public PruneTest {};

TEST_F(NoScrub, PassNeedsExplicitRate) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  EXPECT_EQ(ask_root("scrub", "{}").at("state"), "off");
  EXPECT_EQ(ask_root("scrub", "{}").at("commits_waiting"), 0);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  EXPECT_THAT(root.query("scrub", R"({"start": true})").json, HasSubstr("--rate"));
  ask_root("scrub", R"({"start": true, "bytes_per_second": 104857600})");
  for (int ticks = 0; ticks < 10; ++ticks) {
    world.tick(std::chrono::milliseconds(100));
    world.run();
  }
  EXPECT_EQ(ask_root("scrub", "{}").at("last_pass").at("commits"), 1);
}

}  // namespace
}  // namespace ckptd::testing
