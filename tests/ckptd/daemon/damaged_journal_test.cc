// Bit rot in the middle of the journal is found while the catalog still has the lost records.
// The journal is read to its end before anything is discarded, and the next start rewrites it.
#include <gmock/gmock.h>

#include <functional>
#include <utility>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/recovery/identity.h"
#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/io/passing_disk.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr char kTinyTarget[] = R"({"target": "tiny"})";

// After a given number of changes every operation that changes the disk fails.
class EndingDisk final : public PassingDisk {
 public:
  EndingDisk(Disk& disk, size_t changes) : PassingDisk(disk), left_(changes) {}
  bool ended() const { return ended_; }

  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override {
    CKPT_TRY(change());
    return disk_.create_file(path, preallocate_bytes);
  }
  Status truncate(FileId file, uint64_t bytes) override {
    CKPT_TRY(change());
    return disk_.truncate(file, bytes);
  }
  Status remove(std::string_view path) override {
    CKPT_TRY(change());
    return disk_.remove(path);
  }
  Status rename(std::string_view from, std::string_view to) override {
    CKPT_TRY(change());
    return disk_.rename(from, to);
  }
  Status sync_directory(std::string_view path) override {
    CKPT_TRY(change());
    return disk_.sync_directory(path);
  }
  void submit(IoRequest request) override {
    const bool changes = request.op != IoOp::kRead && request.op != IoOp::kAllocate;
    if (const Status status = changes ? change() : Status(); !status.ok()) {
      request.op = IoOp::kAllocate;  // of 0 bytes: the request fails from reap(), as promised
      request.bytes = 0;
      request.on_done = [on_done = std::move(request.on_done), status](const auto&) {
        on_done(status.error());
      };
    }
    disk_.submit(std::move(request));
  }

 private:
  Status change() {
    ended_ = ended_ || left_ == 0;
    if (ended_) return ckpt::make_error(ckpt::ErrorCode::kIo, "the machine is going down");
    --left_;
    return {};
  }
  size_t left_;
  bool ended_ = false;
};

class DamagedJournalTest : public ::testing::Test {
 protected:
  explicit DamagedJournalTest(uint64_t scrub_rate = 0)
      : world({.scrub_bytes_per_second = scrub_rate}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
    job.commit(5);
    middle = journal_bytes();
    for (const ckpt::Step step : {10, 15, 20}) job.commit(step);
  }
  uint64_t journal_bytes() {
    const FileId file = world.disk().open(kJournalPath, {}).value();
    // Length of the records, not of the file: the file is preallocated.
    const auto scan =
        scan_journal_file(world.disk(), file, [](uint64_t, const auto&) { return Status(); });
    world.disk().close(file);
    return scan.value().end.offset;
  }
  void flip(uint64_t offset) { world.disk().flip(kJournalPath, offset); }
  // Kills the daemon with -9, flips a bit, and returns the result of the next start.
  Status restart_with_flip(uint64_t offset) {
    world.kill_daemon();
    flip(offset);
    return world.start();
  }
  // Files in the journal directory, without the marker of a salvage (it stays until a reclaim).
  std::vector<std::string> journal_files() {
    std::vector<std::string> names = world.disk().list(kJournalDirectory).value();
    std::erase(names, kOlderJournalMarker);
    return names;
  }
  fb::QueryReplyT ask(const std::string& verb, const std::string& args = "{}") {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    auto reply = root.query(verb, args);
    root.die();
    return reply;
  }
  // Answers to every query about the history.
  std::vector<std::string> history() {
    std::string deleted;  // without sizes: the journal does not keep them for deleted commits
    for (const auto& commit :
         nlohmann::json::parse(ask("log", R"({"target": "tiny", "deleted": true})").json)) {
      deleted += fmt::format("{} {} {}; ", commit.at("step").dump(), commit.at("time").dump(),
                             commit.value("reason", ""));
    }
    return {ask("log", kTinyTarget).json,
            ask("show", R"({"target": "tiny@20"})").json,
            ask("runs").json,
            ask("runs", R"({"removed": true})").json,
            ask("keep", kTinyTarget).json,
            ask("grant", kTinyTarget).json,
            deleted};
  }
  // Makes records of every kind.
  void make_history() {
    const auto must = [this](const std::string& verb, const std::string& args) {
      const auto reply = ask(verb, args);
      EXPECT_EQ(reply.exit_code, 0) << verb << " " << args << ": " << reply.json;
    };
    Job gone(world, 1, {.run = "gone"});
    gone.start();
    gone.commit(1);
    gone.ranks[0]->send(fb::LeaveGroupT());
    gone.ranks[0]->die();
    world.run();
    must("rm", R"({"target": "gone"})");
    must("tag", R"({"target": "tiny@10", "tag": "good"})");
    must("pin", R"({"target": "tiny@5"})");
    must("grant", R"({"target": "tiny", "user": 7, "rights": ["read"]})");
    must("keep", R"({"target": "tiny", "rules": {"last": 1}})");
    must("prune", R"({"target": "tiny"})");
    world.run();
  }
  World world;
  Job job;
  uint64_t middle = 0;  // offset of the batch with the commit of step 10
};

TEST_F(DamagedJournalTest, RebuildRefusesDamagedJournalAndKeepsCatalog) {
  const auto before = history();
  flip(middle + 200);
  const auto refused = ask("rebuild");
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.json,
              AllOf(HasSubstr(kJournalPath), HasSubstr(fmt::format("offset {}", middle)),
                    HasSubstr("the catalog stays as it is"), HasSubstr("restart ckptd")));
  EXPECT_EQ(history(), before);
  job.commit(25);
  // Damage in the last batch counts, too. It is no torn write: the catalog has the batch.
  flip(middle + 200);
  const uint64_t end = journal_bytes();
  flip(end - ckpt::kBlockBytes + 200);
  EXPECT_EQ(ask("rebuild").exit_code, 4);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(25, 20, 15, 10, 5));
  flip(end - ckpt::kBlockBytes + 200);
  EXPECT_EQ(ask("rebuild").exit_code, 0);
}

TEST_F(DamagedJournalTest, StoreVerifyNamesFileAndOffset) {
  EXPECT_EQ(ask("verify").exit_code, 0);
  flip(middle + 200);
  const auto found = ask("verify");
  EXPECT_EQ(found.exit_code, 4);
  const auto errors = nlohmann::json::parse(found.json).at("errors");
  ASSERT_EQ(errors.size(), 1u) << errors;
  EXPECT_EQ(errors[0].at("unit"), kJournalPath);
  EXPECT_EQ(errors[0].at("run"), "");
  EXPECT_THAT(errors[0].at("reason").get<std::string>(),
              AllOf(HasSubstr(fmt::format("offset {}", middle)), HasSubstr("restart ckptd")));
  EXPECT_EQ(ask("verify", kTinyTarget).exit_code, 0) << "of one run it is not";
}

TEST_F(DamagedJournalTest, StartRewritesJournalDamagedAnywhere) {
  make_history();
  const auto before = history();
  const uint64_t end = journal_bytes();
  std::unique_ptr<MemoryDisk> whole;
  world.kill_daemon();
  whole = world.disk().clone(1);
  const size_t batches = world.catalog().batches();
  for (uint64_t block = 0; block < end; block += ckpt::kBlockBytes) {
    SCOPED_TRACE(block);
    world.set_disk(whole->clone(block));
    flip(block + 200);
    const Status started = world.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_EQ(history(), before);
    EXPECT_EQ(ask("verify").exit_code, 0);
    EXPECT_THAT(journal_files(), ElementsAre("damaged-1.log", "journal.log"));
    EXPECT_EQ(ask("rebuild").exit_code, 0);
    EXPECT_EQ(history(), before) << "as the new one has it";
    world.kill_daemon();
    ASSERT_TRUE(world.start().ok());
    EXPECT_EQ(history(), before);
    world.kill_daemon();
    // The catalog as it was, rebuilt from the undamaged journal.
    world.set_disk(whole->clone(block));
    world.lose_catalog();
    ASSERT_TRUE(world.start().ok());
    ASSERT_EQ(history(), before);
    world.kill_daemon();
    whole = world.disk().clone(1);
  }
  EXPECT_GT(batches, 0u);
}

TEST_F(DamagedJournalTest, ResumesAfterDamageAtJournalStart) {
  ASSERT_TRUE(restart_with_flip(200).ok());
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 20u);
  EXPECT_EQ(job.ranks[0]->epoch().epoch, 2u);
  job.expect_restores(*job.ranks[0], 20);
  job.commit(25);
}

TEST_F(DamagedJournalTest, DamagedJournalIsKeptWhole) {
  world.kill_daemon();
  flip(middle + 200);
  const auto content = [this](const std::string& path) {
    const FileId file = world.disk().open(path, {}).value();
    AlignedBuffer bytes(world.disk().size(file).value());
    EXPECT_TRUE(world.disk().read_now(file, 0, bytes.bytes()).ok());
    world.disk().close(file);
    return std::vector<std::byte>(bytes.bytes().begin(), bytes.bytes().end());
  };
  const auto damaged = content(kJournalPath);
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(content("journal/damaged-1.log"), damaged);
  ASSERT_TRUE(restart_with_flip(middle + 200).ok()) << "again";
  EXPECT_THAT(journal_files(), ElementsAre("damaged-1.log", "damaged-2.log", "journal.log"));
  EXPECT_EQ(content("journal/damaged-1.log"), damaged);
}

TEST_F(DamagedJournalTest, LaggingCatalogReplaysJournalTail) {
  const auto before = history();
  world.kill_daemon();
  world.catalog().keep_prefix(world.catalog().batches() - 1);  // has step 15, but not step 20
  flip(middle + 200);
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(history(), before);
}

TEST_F(DamagedJournalTest, UnrecoverableDamageRefusesStartWithAdvice) {
  world.kill_daemon();
  const auto disk = world.disk().clone(1);
  world.catalog().keep_prefix(world.catalog().batches() - 3);  // its last commit is step 5
  flip(middle + 200);
  for (const std::string why : {"the catalog ends with record", "there is no catalog"}) {
    const Status refused = world.start();
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr(kJournalPath), HasSubstr(fmt::format("offset {}", middle)),
                      HasSubstr(why), HasSubstr("back from a copy"),
                      HasSubstr(fmt::format("truncate -s {} {}", middle, kJournalPath))));
    EXPECT_THAT(journal_files(), ElementsAre("journal.log")) << "nothing was changed";
    world.lose_catalog();
  }
  // Follow the advice in the message.
  const FileId file = world.disk().open(kJournalPath, {}).value();
  ASSERT_TRUE(world.disk().truncate(file, middle).ok());
  world.disk().close(file);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(ask("log", kTinyTarget).json,
              AllOf(HasSubstr("\"step\":5"), Not(HasSubstr("\"step\":10"))));
}

// A power loss at any change that the start makes. Unsynced data is lost.
TEST_F(DamagedJournalTest, CrashDuringSalvageLosesNothing) {
  make_history();
  const auto before = history();
  world.kill_daemon();
  const auto whole = world.disk().clone(1);
  bool ended = true;
  for (size_t changes = 0; ended; ++changes) {
    SCOPED_TRACE(changes);
    world.set_disk(whole->clone(changes));
    world.lose_catalog();
    ASSERT_TRUE(world.start().ok());
    world.kill_daemon();
    flip(middle + 200);
    EndingDisk ending(world.disk(), changes);
    world.set_door(&ending);
    const bool started = world.start().ok();
    world.set_door(nullptr);
    ended = ending.ended();
    if (started) {
      world.kill_daemon();
      continue;
    }
    world.set_disk(world.disk().crash(changes));
    const Status again = world.start();
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(history(), before);
    EXPECT_EQ(ask("verify").exit_code, 0);
    EXPECT_THAT(journal_files(), ElementsAre("damaged-1.log", "journal.log"));
    world.kill_daemon();
  }
}

class ScrubbedJournalTest : public DamagedJournalTest {
 protected:
  ScrubbedJournalTest() : DamagedJournalTest(1u << 20) {}
  void finish_pass() {
    for (int i = 0; i < 300; ++i) {
      world.tick(100ms);
      world.run();
    }
    ASSERT_TRUE(nlohmann::json::parse(ask("scrub").json).at("pass").is_null());
  }
};

TEST_F(ScrubbedJournalTest, ScrubPassFindsJournalDamage) {
  flip(middle + 200);
  EXPECT_EQ(ask("scrub", R"({"start": true})").exit_code, 0);
  finish_pass();
  const auto found = ask("scrub");
  EXPECT_EQ(found.exit_code, 4);
  EXPECT_THAT(found.json,
              AllOf(HasSubstr(kJournalPath), HasSubstr(fmt::format("offset {}", middle))));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_scrub_errors_total 1\n"));
  // The next scrub pass does not find the damage again.
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(journal_files(), Contains("damaged-1.log"));
  EXPECT_EQ(ask("scrub", R"({"start": true})").exit_code, 0);
  finish_pass();
  EXPECT_EQ(ask("scrub").exit_code, 0);
}

}  // namespace
}  // namespace ckptd::testing
