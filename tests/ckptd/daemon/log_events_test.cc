// Events of the log as a program reads them: one JSON object per line, with the fields of the table
// in docs/reference/metrics.md.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "ckptd/limits.h"
#include "ckptd/observe/log_format.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using Fields = std::set<std::string>;

// Items "- `name` (`field`, `field`): when" of the page's section "Log events". Everything up to
// the colon is on one line.
std::map<std::string, Fields> documented() {
  std::map<std::string, Fields> events;
  std::ifstream file(CKPTD_METRICS_PAGE);
  const std::regex quoted("`([a-z_]+)`");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## Log events";
    if (!inside || !line.starts_with("- `")) continue;
    const std::string head = line.substr(0, line.find(':'));
    std::string name;
    for (std::sregex_iterator at(head.begin(), head.end(), quoted), end; at != end; ++at) {
      if (name.empty()) {
        name = (*at)[1];
        EXPECT_TRUE(events.try_emplace(name).second) << name << " has two items";
      } else {
        events[name].insert((*at)[1]);
      }
    }
  }
  return events;
}

class LogEventsTest : public ::testing::Test {
 protected:
  LogEventsTest() {
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(log_);
    sink->set_formatter(make_log_formatter("json"));
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("json", sink));
  }
  ~LogEventsTest() override {
    world_.reset();
    spdlog::set_default_logger(before_);
  }

  World& begin(const World::Options& options) {
    world_ = std::make_unique<World>(options);
    spdlog::set_level(spdlog::level::info);  // a World logs nothing by default
    EXPECT_TRUE(world_->start().ok());
    return *world_;
  }
  // Events of this name since the last call, without the fields that every line has.
  std::vector<Json> taken(const std::string& name) {
    read();
    std::vector<Json> found;
    std::erase_if(events_, [&](const Json& event) {
      if (event.at("event") != name) return false;
      found.push_back(event);
      return true;
    });
    return found;
  }
  // The only event of its name since the last call.
  Json one(const std::string& name) {
    const auto found = taken(name);
    EXPECT_THAT(found, SizeIs(1)) << name;
    return found.empty() ? Json::object() : found.front();
  }
  void read() {
    std::istringstream lines(log_.str());
    log_.str("");
    for (std::string line; std::getline(lines, line);) {
      Json object = Json::parse(line, nullptr, false);
      ASSERT_TRUE(object.is_object()) << line;
      for (const char* key : {"time", "level", "process", "message"}) {
        ASSERT_EQ(object.count(key), 1u) << line;
        if (key != std::string_view("message")) object.erase(key);
      }
      if (!object.contains("event")) continue;
      for (const auto& [key, value] : object.items()) {
        if (key != "event" && key != "message") seen_[object.at("event")].insert(key);
      }
      seen_.try_emplace(object.at("event"));
      events_.push_back(std::move(object));
    }
  }
  // Compares the fields of every event seen so far with the page.
  void expect_documented() {
    read();
    const auto rows = documented();
    for (const auto& [name, fields] : seen_) {
      ASSERT_TRUE(rows.contains(name)) << name;
      EXPECT_EQ(fields, rows.at(name)) << name;
    }
  }

  std::unique_ptr<World> world_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::vector<Json> events_;
  std::map<std::string, Fields> seen_;
};

// The event has these fields with these values.
void expect_fields(const Json& event, const Json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    ASSERT_TRUE(event.contains(name)) << name << " of " << event;
    EXPECT_EQ(event.at(name), value) << name << " of " << event;
  }
}

TEST_F(LogEventsTest, TrainingRunLogsDocumentedEvents) {
  World& world = begin({});
  expect_fields(one("recovered"), {{"runs", 0}, {"clean", true}});
  Job job(world, 2);
  job.start();
  const Json opened = one("epoch_opened");
  expect_fields(opened, {{"run", "tiny"}, {"epoch", 1}, {"ranks", 2}, {"lineage", 1}});
  EXPECT_TRUE(opened.at("resume_step").is_null());

  job.ranks[1]->timings = {.plan_ns = 500'000'000, .copy_ns = 2'000'000'000};
  job.commit(5);
  const Json durable = one("snapshot_durable");
  expect_fields(durable, {{"run", "tiny"}, {"lineage", 1}, {"epoch", 1}, {"step", 5}});
  EXPECT_EQ(durable.at("message"), fmt::format("run tiny step 5: durable, {} bytes in {} extents",
                                               durable.at("bytes").get<uint64_t>(),
                                               durable.at("extents").get<uint64_t>()));
  EXPECT_TRUE(durable.at("seconds").is_number_float());
  expect_fields(durable, {{"plan", 0.5}, {"copy", 2.0}, {"slab_wait", 0.0}});
  expect_fields(durable, {{"last_rank", 1}, {"late", 0.0}});
  for (const char* part : {"write", "sync", "journal"}) {
    EXPECT_TRUE(durable.at(part).is_number_float()) << part;
  }

  job.begin(7);
  job.ranks[1]->die();
  world.run();
  const Json failed = one("snapshot_failed");
  expect_fields(failed, {{"run", "tiny"}, {"epoch", 1}, {"step", 7}});
  EXPECT_EQ(failed.at("message"), failed.at("reason"));
  expect_fields(one("epoch_ended"), {{"run", "tiny"}, {"epoch", 1}, {"lost", Json::array({1})}});

  job.replace(1);
  job.join(fb::ResumeMode::Continue);
  expect_fields(one("epoch_opened"),
                {{"epoch", 2}, {"lineage", 2}, {"resume_lineage", 1}, {"resume_step", 5}});
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  expect_fields(one("recovered"), {{"runs", 1}, {"clean", false}});
  EXPECT_THAT(taken("catalog_made"), SizeIs(0));
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_GT(one("catalog_made").at("records"), 5);
  expect_documented();
}

// One line when the disk is full, one for the first snapshot that fails, and one each when the
// condition ends, however many snapshots fail in between.
TEST_F(LogEventsTest, FullDiskLogsConditionsOnce) {
  World& world = begin({});
  Job job(world, 2);
  job.start();
  job.commit(1);
  world.disk().set_capacity(8ull << 20);  // less than is used
  ckpt::Step step = 2;
  size_t failed = 0;
  for (; failed < 5 && step < 100; ++step) {
    job.begin(step);
    job.listen();
    if (job.ranks[0]->snapshot(step).level == fb::SnapshotLevel::Failed) {
      ++failed;
    } else {
      job.fill(step);
    }
    world.tick(std::chrono::seconds(1));
    world.run();
  }
  ASSERT_EQ(failed, 5u);
  const auto began = taken("condition_began");
  ASSERT_THAT(began, SizeIs(2));
  EXPECT_EQ(began[0].at("condition"), "disk_full");
  EXPECT_EQ(began[1].at("condition"), "snapshots_failing");
  EXPECT_THAT(one("snapshot_failed").at("reason").get<std::string>(), HasSubstr("disk full: "));
  world.disk().set_capacity(1ull << 30);
  world.tick(std::chrono::seconds(1));
  expect_fields(one("condition_ended"), {{"condition", "disk_full"}});
  job.commit(step);
  expect_fields(one("snapshots_recovered"), {{"run", "tiny"}, {"step", step}, {"failed", 5}});
  world.tick(std::chrono::seconds(1));
  expect_fields(one("condition_ended"), {{"condition", "snapshots_failing"}});
  expect_documented();
}

TEST_F(LogEventsTest, AlarmAndSkippedSnapshotLogDocumentedEvents) {
  World& world = begin({.alarms = fb::AlarmPolicy::Warn});
  Job job(world, 1, {.arena_bytes = 9 * (64u << 10)});  // one snapshot takes most of the slabs
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  trainer.byte_at = [](ckpt::UnitId unit, ckpt::Step, uint64_t, uint64_t) {
    return std::byte(unit);
  };
  for (const ckpt::Step step : {5, 6}) job.commit(step);
  const Json alarm = one("alarm");
  expect_fields(alarm, {{"run", "tiny"}, {"lineage", 1}, {"epoch", 1}, {"step", 6}});
  EXPECT_EQ(alarm.at("message"),
            "run tiny step 6: ALARM: " + alarm.at("reason").get<std::string>());
  job.begin(7);
  ASSERT_TRUE(trainer.fill(7));
  trainer.begin(8, job.plan(job.all_units()), 0, 0, fb::OutOfSlabs::Skip);
  expect_fields(one("snapshot_skipped"), {{"run", "tiny"}, {"step", 8}, {"rank", 0}});
  expect_documented();
}

TEST_F(LogEventsTest, DeletionLogsDocumentedEvents) {
  World& world = begin({.segment_bytes = 768u << 10});
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  const auto pruned = job.ranks[0]->query("prune", kLast1);
  ASSERT_EQ(pruned.exit_code, 0) << pruned.json;
  world.run();
  const Json deleted = one("commit_deleted");
  expect_fields(deleted, {{"run", "tiny"}, {"lineage", 1}, {"step", 5}, {"kept_units", 0}});
  EXPECT_THAT(deleted.at("message").get<std::string>(),
              HasSubstr(deleted.at("reason").get<std::string>()));
  EXPECT_GT(one("space_freed").at("bytes"), 0);
  job.ranks[0]->send(fb::LeaveGroupT());
  job.ranks[0]->die();
  world.run();
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  ASSERT_EQ(root.query("rm", R"({"target": "tiny"})").exit_code, 0);
  expect_fields(one("run_removed"), {{"run", "tiny"}, {"reason", "removed by user 0"}});
  expect_documented();
}

TEST_F(LogEventsTest, DamageLogsDocumentedEvents) {
  World& world = begin({.scrub_bytes_per_second = 1u << 20});
  Job job(world, 1);
  job.start();
  job.commit(5);
  const auto place = place_of_fragment(world, 5, 3);
  world.disk().flip(place.path, place.offset + 11);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  ASSERT_EQ(root.query("scrub", R"({"start": true})").exit_code, 0);
  for (int i = 0; i < 200; ++i) {
    world.tick(std::chrono::milliseconds(100));
    world.run();
  }
  expect_fields(one("scrub_damage"),
                {{"run", "tiny"}, {"lineage", 1}, {"step", 5}, {"unit", job.model[3].name}});
  expect_fields(one("scrub_pass"), {{"pass", 1}, {"damaged_units", 1}});
  // A start that rebuilds the catalog reads the headers of all extents.
  world.disk().flip(place.path, place.extent_offset + 11);
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  expect_fields(one("commit_damaged"), {{"run", "tiny"}, {"lineage", 1}, {"step", 5}});
  // A start that finds the journal damaged rewrites it.
  world.kill_daemon();
  world.disk().flip(kJournalPath, 200);
  ASSERT_TRUE(world.start().ok());
  expect_fields(one("journal_salvaged"),
                {{"path", kJournalPath}, {"kept", "journal/damaged-1.log"}});
  expect_documented();
}

TEST_F(LogEventsTest, MissingSegmentIsNamedOnce) {
  World& world = begin({.segment_bytes = 32u << 20});
  Job job(world, 1);
  job.start();
  constexpr uint64_t kCommits = 2 * limits::kDamageLinesMax;
  for (uint64_t step = 1; step <= kCommits; ++step) job.commit(step);
  world.kill_daemon();
  world.lose_catalog();
  const std::string path = place_of_fragment(world, 1, 3).path;
  const std::vector<std::byte> segment = file_bytes(world.disk(), path);
  ASSERT_TRUE(world.disk().remove(path).ok());
  log_.str("");
  ASSERT_TRUE(world.start().ok());
  const std::string start = log_.str();
  EXPECT_THAT(start, HasSubstr("segments/000001.seg is missing, and commits need it: put it back"));
  EXPECT_THAT(start, HasSubstr("8 more commits are damaged: segments/000001.seg is missing"));
  EXPECT_THAT(taken("commit_damaged"), SizeIs(limits::kDamageLinesMax));
  world.kill_daemon();
  put_file(world.disk(), path, segment);
  log_.str("");
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_.str(), HasSubstr("8 more commits count as good again"));
  EXPECT_THAT(taken("commit_mended"), SizeIs(limits::kDamageLinesMax));
  expect_documented();
}

}  // namespace
}  // namespace ckptd::testing
