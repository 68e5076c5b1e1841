// A real disk that runs full in the middle of a snapshot, and has room again later. Daemon and
// trainer go on without a restart, and announced commits are unchanged.
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/client/trainers.h"
#include "tests/support/loop_disk.h"

namespace ckpt::test {
namespace {

// More than the daemon's reserve, which snapshots cannot use.
constexpr uint64_t kDiskBytes = 400ull << 20;
constexpr std::chrono::seconds kRecoveryMax{60};

class DiskFull : public testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.missing().empty()) GTEST_SKIP() << disk_.missing();
    daemon_ = std::make_unique<DaemonProcess>(std::vector<std::string>{"--arena", "64MiB"},
                                              disk_.path("data"));
  }
  Finished ctl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("ckptctl"));
    return run_program(arguments, {"CKPTD_SOCKET=unix:" + daemon_->socket()});
  }
  std::set<uint64_t> listed() const {
    const Finished finished = ctl({"log", run_.name, "--json"});
    std::set<uint64_t> steps;
    for (const auto& commit : nlohmann::json::parse(finished.out, nullptr, false)) {
      EXPECT_EQ(commit.value("level", ""), "durable") << commit;
      steps.insert(commit.value("step", uint64_t{0}));
    }
    return steps;
  }

  const SmallRun run_;
  LoopDisk disk_{kDiskBytes};
  std::unique_ptr<DaemonProcess> daemon_;  // goes before its disk
};

TEST_F(DiskFull, FailsOnlySnapshotBeingWritten) {
  auto session = open_trainer(*daemon_, run_);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  ASSERT_OK(save(*session, run_, 1, 0, 1));
  ASSERT_OK(save(*session, run_, 2, 0, 1));

  // The disk had room for the snapshot when it began.
  const auto plan = run_.plan(3, 1);
  {
    auto snapshot = session->begin(plan);
    ASSERT_OK(snapshot);
    disk_.fill();
    ASSERT_OK(write_share(*snapshot, run_, plan, 0));
    ASSERT_OK(snapshot->end());
    const auto durable = snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
    ASSERT_FALSE(durable.ok()) << "a full disk took it";
    EXPECT_NE(snapshot->info().reason.find("o space left"), std::string::npos)
        << snapshot->info().reason;
  }
  // While the disk is full, begin() fails at once, and existing commits can be read.
  const auto refused = session->begin(run_.plan(4, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("disk"), std::string::npos) << refused.error().message;
  expect_state(*session, run_, 2);

  disk_.empty();
  ASSERT_OK(save(*session, run_, 5, 0, 1));
  // The catalog had nowhere to write to, either. It is made good by itself.
  const auto end = std::chrono::steady_clock::now() + kRecoveryMax;
  while (ctl({"log", run_.name}).exit_code != 0 && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(listed(), (std::set<uint64_t>{1, 2, 5}));
  for (const uint64_t step : {1, 2, 5}) expect_state(*session, run_, step);
  const Finished verified = ctl({"verify"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
  ASSERT_OK(session->leave());
  EXPECT_EQ(daemon_->stop(), 0) << "it was the same one all the time";
}

}  // namespace
}  // namespace ckpt::test
