// libckpt against the real daemon: what a trainer relies on, through crashes of either side.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

#include "formats/base/unique_fd.h"
#include "formats/wire/frame.h"
#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

using client::Session;

TEST(Daemon, ThreeRanksRestoreSnapshotOfFour) {
  DaemonProcess daemon;
  const SmallRun run;
  run_ranks(4, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(rank, 4)));
    for (uint64_t step = 1; step <= 3; ++step) ASSERT_OK(save(*session, run, step, rank, 4));
    ASSERT_OK(session->leave());
  });
  run_ranks(3, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    const auto epoch = session->join(as_rank(rank, 3));
    ASSERT_OK(epoch);
    ASSERT_TRUE(epoch->resume);
    EXPECT_EQ(epoch->resume->step, 3u);
    // A third of each unit, and a piece from its middle that no rank had saved as such.
    for (uint32_t unit = 0; unit < run.unit_bytes.size(); ++unit) {
      const uint64_t bytes = run.unit_bytes[unit];
      const uint64_t begin = bytes * rank / 3;
      std::vector<char> into(bytes * (rank + 1) / 3 - begin);
      std::vector<char> middle(bytes / 2);
      client::RestoreOptions options;
      options.latest = true;
      ASSERT_OK(session->restore(options, {{unit, begin, into.size(), into.data()},
                                           {unit, bytes / 4, middle.size(), middle.data()}}));
      const std::vector<char> saved = run.state(3, unit);
      EXPECT_TRUE(std::equal(into.begin(), into.end(), saved.begin() + begin));
      EXPECT_TRUE(std::equal(middle.begin(), middle.end(), saved.begin() + bytes / 4));
    }
    expect_state(*session, run, 2);
  });
  EXPECT_EQ(daemon.stop(), 0);
}

TEST(Daemon, SurvivesKillWhileSnapshotIsFilled) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  ASSERT_OK(save(*session, run, 1, 0, 1));
  const auto plan = run.plan(2, 1);
  auto snapshot = session->begin(plan);
  ASSERT_OK(snapshot);
  const std::vector<char> first = run.state(2, 0);
  ASSERT_OK(snapshot->write(0, 0, first.data(), 280'000));  // one slab sealed, one begun
  daemon.crash_and_restart();
  ASSERT_OK(snapshot->write(0, 280'000, first.data() + 280'000, 20'000));
  for (uint32_t unit = 1; unit < 4; ++unit) {
    const std::vector<char> bytes = run.state(2, unit);
    ASSERT_OK(snapshot->write(unit, 0, bytes.data(), bytes.size()));
  }
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  EXPECT_FALSE(session->epoch_ended());
  expect_state(*session, run, 1);
  expect_state(*session, run, 2);
}

// Regression: the job went on with a ckptd that had none of its commits, without a word.
TEST(Daemon, AnotherStoreIsAsGoodAsNone) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  ASSERT_OK(save(*session, run, 1, 0, 1));
  const std::string away = daemon.data() + ".away";
  daemon.kill();
  std::filesystem::rename(daemon.data(), away);
  daemon.start();  // an empty store, as of a disk that is not mounted
  const auto status = session->query("status", "{}", 3'000);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().status, CKPT_E_UNAVAILABLE);
  EXPECT_THAT(status.error().message, testing::HasSubstr("ckptd has come back with another store"));
  EXPECT_FALSE(session->epoch_ended());
  daemon.kill();
  std::filesystem::remove_all(daemon.data());
  std::filesystem::rename(away, daemon.data());
  daemon.start();
  ASSERT_OK(save(*session, run, 2, 0, 1));
  expect_state(*session, run, 1);
  expect_state(*session, run, 2);
}

TEST(Daemon, SurvivesKillAtEveryStageOfSnapshot) {
  DaemonProcess daemon;
  const SmallRun run;
  auto first = open_trainer(daemon, run);
  auto second = open_trainer(daemon, run);
  ASSERT_OK(first);
  ASSERT_OK(second);
  Session* sessions[2] = {&*first, &*second};
  run_ranks(2, [&](uint32_t rank) { ASSERT_OK(sessions[rank]->join(as_rank(rank, 2))); });
  // Stage 0: begun, 1: the first rank wrote, 2: it ended, 3: both ended.
  for (uint64_t stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    const auto plan = run.plan(stage + 1, 2);
    auto a = first->begin(plan);
    auto b = second->begin(plan);
    ASSERT_OK(a);
    ASSERT_OK(b);
    if (stage == 0) daemon.crash_and_restart();
    ASSERT_OK(write_share(*a, run, plan, 0));
    if (stage == 1) daemon.crash_and_restart();
    ASSERT_OK(a->end());
    if (stage == 2) daemon.crash_and_restart();
    ASSERT_OK(write_share(*b, run, plan, 1));
    ASSERT_OK(b->end());
    if (stage == 3) daemon.crash_and_restart();
    run_ranks(2, [&](uint32_t rank) {
      ASSERT_OK((rank == 0 ? *a : *b).wait(CKPT_LEVEL_DURABLE, 60'000));
    });
    expect_state(*first, run, stage + 1);
  }
  const Finished verify = run_program({program("ckptctl"), "verify", "--socket", daemon.socket()});
  EXPECT_EQ(verify.exit_code, 0) << verify.out << verify.err;
}

TEST(Daemon, StoppedDaemonDoesNotStopTrainer) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  daemon.kill();
  for (int step = 0; step < 100; ++step) ASSERT_OK(session->poll(0));
  EXPECT_EQ(session->fd(), -1);
  client::SnapshotOptions plan = run.plan(1, 1);
  plan.timeout_ms = 30;
  const auto refused = session->begin(plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, CKPT_E_UNAVAILABLE) << refused.error().message;
  daemon.start();
  ASSERT_OK(save(*session, run, 1, 0, 1));
  expect_state(*session, run, 1);
}

TEST(Daemon, LostMemberEndsTheEpochAndIsNamed) {
  DaemonProcess daemon;
  const SmallRun run;
  auto survivor = open_trainer(daemon, run);
  ASSERT_OK(survivor);
  {
    auto victim = open_trainer(daemon, run);
    ASSERT_OK(victim);
    std::thread joining([&] { ASSERT_OK(victim->join(as_rank(1, 2))); });
    ASSERT_OK(survivor->join(as_rank(0, 2)));
    joining.join();
  }  // closed without leaving
  const auto value = survivor->kv_get("never set", 60'000);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().status, CKPT_E_ABORTED);
  EXPECT_EQ(survivor->epoch_ended(), std::vector<uint32_t>{1});
  const auto again = survivor->join(as_rank(0, 1));
  ASSERT_OK(again);
  ASSERT_OK(save(*survivor, run, 1, 0, 1));
}

TEST(Daemon, RanksThatDisagreeOnThePlanAreNamed) {
  DaemonProcess daemon;
  const SmallRun run;
  run_ranks(2, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(rank, 2)));
    auto plan = run.plan(1, 2);
    if (rank == 1) plan.fragments[0].length += 1;
    std::string reason;
    auto snapshot = session->begin(plan);
    if (snapshot) {
      const auto failed = snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
      ASSERT_FALSE(failed);
      reason = failed.error().message;
    } else {
      reason = snapshot.error().message;
    }
    EXPECT_NE(reason.find("rank"), std::string::npos) << reason;
    ASSERT_OK(session->leave());
  });
}

TEST(Daemon, HolesAndOverlapsNameUnitAndRange) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  const auto failure = [&](const client::SnapshotOptions& plan) -> std::string {
    auto snapshot = session->begin(plan);
    if (!snapshot) return snapshot.error().message;
    const auto failed = snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
    return failed ? "it was committed" : failed.error().message;
  };
  client::SnapshotOptions hole = run.plan(1, 1);
  hole.fragments[2].length -= 10;
  EXPECT_NE(failure(hole).find("layers.2"), std::string::npos) << failure(hole);
  client::SnapshotOptions overlap = run.plan(1, 1);
  overlap.attempt = 1;
  overlap.fragments.push_back({0, 3, 500, 10});
  EXPECT_NE(failure(overlap).find("layers.3"), std::string::npos);
  ASSERT_OK(save(*session, run, 2, 0, 1));  // nothing is left behind
}

// A snapshot whose bytes change after their checksum was computed is never committed.
class Tampering : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_trainer(daemon_, run_);
    ASSERT_OK(opened);
    session_.emplace(std::move(opened).value());
    ASSERT_OK(session_->join(as_rank(0, 1)));
    ASSERT_OK(save(*session_, run_, 1, 0, 1));
    arena_ = static_cast<char*>(ckpt_arena(session_->handle(), &arena_bytes_));
  }
  // Address of the unit's first bytes in the arena.
  char* find(const std::vector<char>& bytes) const {
    const std::string_view arena(arena_, arena_bytes_);
    const size_t at = arena.find(std::string_view(bytes.data(), 64));
    return at == std::string_view::npos ? nullptr : arena_ + at;
  }
  void expect_failure_then_save(client::Snapshot& snapshot) {
    ASSERT_OK(snapshot.end());
    const auto failed = snapshot.wait(CKPT_LEVEL_DURABLE, 60'000);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().status, CKPT_E_ABORTED);
    expect_state(*session_, run_, 1);
    ASSERT_OK(save(*session_, run_, 3, 0, 1));
    expect_state(*session_, run_, 3);
    const Finished log =
        run_program({program("ckptctl"), "log", "tiny", "--json", "--socket", daemon_.socket()});
    EXPECT_EQ(log.out.find("\"step\": 2"), std::string::npos) << log.out;
  }
  DaemonProcess daemon_;
  SmallRun run_{.unit_bytes = {100'000}};
  std::optional<Session> session_;
  char* arena_ = nullptr;
  uint64_t arena_bytes_ = 0;
};

TEST_F(Tampering, AWrittenByteFailsTheSnapshot) {
  const auto plan = run_.plan(2, 1);
  auto snapshot = session_->begin(plan);
  ASSERT_OK(snapshot);
  ASSERT_OK(write_share(*snapshot, run_, plan, 0));
  char* bytes = find(run_.state(2, 0));
  ASSERT_NE(bytes, nullptr);
  bytes[50'000] ^= 1;
  expect_failure_then_save(*snapshot);
}

TEST_F(Tampering, APunchedHoleFailsTheSnapshot) {
  const auto plan = run_.plan(2, 1);
  auto snapshot = session_->begin(plan);
  ASSERT_OK(snapshot);
  ASSERT_OK(write_share(*snapshot, run_, plan, 0));
  const char* bytes = find(run_.state(2, 0));
  ASSERT_NE(bytes, nullptr);
  // The memfd by way of /proc, as any code in the trainer's process could.
  int fd = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.find("memfd:") != std::string::npos) fd = std::stoi(entry.path().filename());
  }
  ASSERT_GE(fd, 0);
  ASSERT_EQ(
      ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, bytes - arena_ + 8192, 4096), 0);
  expect_failure_then_save(*snapshot);
}

TEST(Daemon, RefusesSnapshotLargerThanArena) {
  DaemonProcess daemon;
  SmallRun run;
  run.arena_bytes = 4 * run.slab_bytes;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  const auto refused = session->begin(run.plan(1, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, CKPT_E_RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.error().message.find("arena"), std::string::npos) << refused.error().message;
}

TEST(Daemon, OutOfSlabsSkipsOrWaitsByOption) {
  DaemonProcess daemon;
  SmallRun run;
  run.arena_bytes = 10 * run.slab_bytes;  // 8 for snapshots; one takes 6
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  auto filling = session->begin(run.plan(1, 1));
  ASSERT_OK(filling);
  client::SnapshotOptions skip = run.plan(2, 1);
  skip.out_of_slabs = CKPT_SLABS_SKIP;
  const auto skipped = session->begin(skip);
  ASSERT_FALSE(skipped);
  EXPECT_EQ(skipped.error().status, CKPT_E_RESOURCE_EXHAUSTED);
  EXPECT_NE(skipped.error().message.find("step 2"), std::string::npos) << skipped.error().message;
  // The next waits for the first to be written out.
  ASSERT_OK(write_share(*filling, run, run.plan(1, 1), 0));
  ASSERT_OK(filling->end());
  ASSERT_OK(save(*session, run, 3, 0, 1));
  EXPECT_EQ(filling->info().level, CKPT_LEVEL_DURABLE);
}

TEST(Daemon, RefusesOtherProtocolVersion) {
  DaemonProcess daemon;
  const base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, daemon.socket().c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  fb::HelloT hello;
  hello.protocol_version = 99;
  hello.run = "tiny";
  const auto frame = wire::encode(std::move(hello));
  ASSERT_EQ(::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(frame.size()));
  wire::FrameReader reader;
  std::byte buffer[4096];
  for (;;) {
    auto message = reader.next();
    ASSERT_OK(message);
    if (*message) {
      const fb::ErrorReplyT* error = (*message)->body.AsErrorReply();
      ASSERT_NE(error, nullptr);
      EXPECT_EQ(error->code, static_cast<int>(ErrorCode::kVersionMismatch));
      EXPECT_NE(error->message.find("99"), std::string::npos) << error->message;
      break;
    }
    const ssize_t received = ::recv(socket.get(), buffer, sizeof buffer, 0);
    ASSERT_GT(received, 0);
    reader.append({buffer, static_cast<size_t>(received)});
  }
  const SmallRun run;
  EXPECT_TRUE(open_trainer(daemon, run).ok());  // and the daemon is up
}

// A second process joins as a rank that is held. It waits, and learns which process holds the rank.
TEST(Daemon, SecondHolderOfRankLearnsCurrentHolder) {
  DaemonProcess daemon;
  const SmallRun run;
  auto first = open_trainer(daemon, run);
  ASSERT_OK(first);
  ASSERT_OK(first->join(as_rank(0, 1)));
  auto second = open_trainer(daemon, run);
  ASSERT_OK(second);
  client::JoinOptions join = as_rank(0, 1);
  join.timeout_ms = 2'000;
  std::vector<std::string> reasons;
  join.waiting = [&](const std::string& why) { reasons.push_back(why); };
  const auto epoch = second->join(join);
  ASSERT_FALSE(epoch);
  EXPECT_EQ(epoch.error().status, CKPT_E_DEADLINE_EXCEEDED);
  const std::string holder = "its place is held by process " + std::to_string(::getpid());
  EXPECT_NE(epoch.error().message.find(holder), std::string::npos) << epoch.error().message;
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons.front().find(holder), 0u) << reasons.front();
  EXPECT_NE(daemon.log().find("waits to join as rank 0: " + holder), std::string::npos)
      << daemon.log();
}

TEST(Daemon, RefusesOtherUnitSizesForRun) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  SmallRun other;
  other.unit_bytes[0] += 1;
  const auto refused = open_trainer(daemon, other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layers.0"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace ckpt::test
