// The real ckptd under a service manager that holds its memory: kill -9, clean restarts, hostile
// descriptors. What trainers had only in memory is still there, or falls back to the disk.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <optional>

#include "tests/client/trainers.h"
#include "tests/support/service_manager.h"

namespace ckpt::test {
namespace {

using base::UniqueFd;
using testing::HasSubstr;

class KeptMemory : public testing::Test {
 protected:
  explicit KeptMemory(bool open_socket = false)
      : manager({.arguments = {"--arena", "64MiB"},
                 .open_socket = open_socket,
                 .watchdog = std::chrono::milliseconds(100)}) {
    manager.start();
  }

  // Step 1 on the disk; of step 2 units 0 and 3 in memory only.
  client::Session train() {
    auto session = open_trainer(manager, run).value();
    EXPECT_TRUE(session.join(as_rank(0, 1)));
    auto saved = save(session, run, 1, 0, 1);
    EXPECT_TRUE(saved) << saved.error().message;
    auto plan = run.plan(2, 1);
    plan.memory_units = {0, 3};
    auto snapshot = session.begin(plan);
    EXPECT_TRUE(snapshot) << snapshot.error().message;
    EXPECT_TRUE(write_share(*snapshot, run, plan, 0));
    EXPECT_TRUE(snapshot->end());
    EXPECT_TRUE(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
    return session;
  }
  // Every byte of step 2 is right. `in_memory`: memory must have bytes of it.
  void expect_step_2(client::Session& session, bool in_memory) {
    std::vector<std::vector<char>> into;
    std::vector<ckpt_range> ranges;
    into.reserve(run.unit_bytes.size());
    for (const uint64_t bytes : run.unit_bytes) {
      into.emplace_back(bytes);
      ranges.push_back({static_cast<uint32_t>(ranges.size()), 0, bytes, into.back().data()});
    }
    client::RestoreOptions options;
    options.step = 2;
    options.memory = true;
    const auto restored = session.restore(options, ranges);
    ASSERT_OK(restored);
    for (uint32_t unit = 0; unit < into.size(); ++unit) {
      const bool of_memory = unit == 0 || unit == 3;
      const uint64_t step = of_memory && !in_memory ? 1 : 2;
      EXPECT_EQ((*restored)[unit].version.step, step) << "unit " << unit;
      EXPECT_TRUE(into[unit] == run.state(step, unit)) << "unit " << unit;
      EXPECT_EQ((*restored)[unit].level,
                of_memory && in_memory ? CKPT_LEVEL_STAGED : CKPT_LEVEL_DURABLE);
    }
  }
  client::Session resume() {
    auto session = open_trainer(manager, run).value();
    EXPECT_TRUE(session.join(as_rank(0, 1)));
    return session;
  }

  SmallRun run;
  ServiceManager manager;
};

TEST_F(KeptMemory, SurvivesKillsWithItsTrainerAndWithout) {
  {
    auto session = train();
    for (int kills = 0; kills < 3; ++kills) {
      manager.kill();
      manager.start();
      expect_step_2(session, true);
    }
    ASSERT_OK(save(session, run, 3, 0, 1));  // and it goes on in the same arena
    ASSERT_OK(session.leave());
  }
  manager.kill();
  manager.start();
  auto session = resume();
  EXPECT_THAT(manager.log(), HasSubstr("were taken back"));
}

TEST_F(KeptMemory, SurvivesTrainerDeathDuringDaemonOutage) {
  std::optional<client::Session> session(train());
  manager.kill();
  session.reset();
  manager.start();
  auto next = resume();
  expect_step_2(next, true);
}

TEST_F(KeptMemory, SurvivesACleanRestart) {
  std::optional<client::Session> session(train());
  session.reset();
  EXPECT_EQ(manager.stop(), 0);
  EXPECT_TRUE(manager.wait_for("STOPPING=1"));
  manager.start();
  auto next = resume();
  expect_step_2(next, true);
}

// The descriptor store returns damaged or other files: the disk has all durable commits.
TEST_F(KeptMemory, DamagedDescriptorsLoseMemoryLevelOnly) {
  for (int kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE(kind);
    if (kind > 0) run.name += "-" + std::to_string(kind);
    std::optional<client::Session> session(train());
    manager.kill();
    session.reset();
    for (auto& [name, fds] : manager.store()) {
      for (UniqueFd& fd : fds) {
        if (kind == 0 && name.starts_with("ledger")) {
          const std::string garbage(4'096, '\xa5');
          EXPECT_EQ(::pwrite(fd.get(), garbage.data(), garbage.size(), 0), 4'096);
        } else if (kind == 1 && name.starts_with("arena")) {
          fd.reset(::memfd_create("other", MFD_CLOEXEC));
        } else if (kind == 2) {
          fd.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
        }
      }
    }
    manager.start();
    auto next = resume();
    expect_step_2(next, false);
  }
}

TEST_F(KeptMemory, ReleasedArenaLeavesDescriptorStore) {
  auto session = open_trainer(manager, run).value();
  EXPECT_TRUE(manager.wait_for("FDSTORE=1\nFDPOLL=0\nFDNAME=arena-1"));
  EXPECT_EQ(manager.stored("arena-1") + manager.stored("ledger-1"), 2u);
  ASSERT_OK(session.leave());
  { const client::Session gone = std::move(session); }
  EXPECT_TRUE(manager.wait_for("FDSTOREREMOVE=1\nFDNAME=ledger-1"));
  EXPECT_EQ(manager.stored("arena-1") + manager.stored("ledger-1"), 0u);
}

TEST_F(KeptMemory, WatchdogIsPingedWhileServing) {
  EXPECT_TRUE(manager.wait_for("WATCHDOG=1", 5));
  EXPECT_EQ(manager.stop(), 0);
}

class OpenedSocket : public KeptMemory {
 protected:
  OpenedSocket() : KeptMemory(true) {}
};

TEST_F(OpenedSocket, ConnectionsWaitDuringDaemonOutage) {
  auto session = train();
  manager.kill();
  {
    const UniqueFd waits(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    manager.socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(waits.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0)
        << "the socket is open although nobody is there";
  }
  manager.start();
  expect_step_2(session, true);
  EXPECT_EQ(manager.stop(), 0);
  manager.start();
  expect_step_2(session, true);
}

}  // namespace
}  // namespace ckpt::test
