// A run whose ckptd answers, but whose disk makes no progress.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/syscall.h>

#include <memory>
#include <optional>
#include <set>

#include "tests/support/held_calls.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class SlowDiskTest : public TrainingTest {
 protected:
  SlowDiskTest() : daemon_(folder_ / "store", {"--io", "pwritev"}) {}
  void SetUp() override {
    ASSERT_TRUE(daemon_.await_ready());
    held_.emplace(daemon_.pid(), std::set<long>{SYS_fdatasync}, "/segments/");
  }
  // A checkpoint of every step; the run does not end by itself.
  WatchedRun start() {
    const std::string events = folder_ / "events";
    return WatchedRun(
        "moetrain",
        arguments("r.json", {"--ranks", "2", "--steps", "1000000", "--checkpoint-every", "1",
                             "--socket", "unix:" + daemon_.socket(), "--events", events}),
        events);
  }
  static bool says(const json& event, const std::string& text) {
    return event.at("event") == "notice" && event.value("text", "").find(text) != std::string::npos;
  }
  static bool is_durable(const json& event) {
    return event.at("event") == "snapshot" && event.value("durable", false);
  }

  Ckptd daemon_;
  std::optional<ckpt::test::HeldCalls> held_;
};

TEST_F(SlowDiskTest, StallIsReportedWhileItLasts) {
  WatchedRun run = start();
  ASSERT_TRUE(run.await([](const json& event) {
    return says(event, "training stands still, for ") &&
           says(event, "until earlier checkpoints are written: the disk is slow");
  })) << run.program().wait().err;
  EXPECT_FALSE(run.has_event(is_durable)) << "the disk is still held";
  held_.reset();
  EXPECT_TRUE(
      run.await([](const json& event) { return says(event, "training continues after "); }));
  (void)run.stop();
}

TEST_F(SlowDiskTest, SecondSignalNamesSnapshotsInFlight) {
  WatchedRun run = start();
  ASSERT_TRUE(run.await([](const json& event) {
    return event.at("event") == "taking" && event.at("step") == 2;
  })) << run.program().wait().err;
  ASSERT_TRUE(held_->await_one(std::chrono::minutes(1)));
  run.program().signal(SIGTERM);
  ASSERT_TRUE(run.program().await_error_output("once more to stop at once"));
  run.program().signal(SIGTERM);
  const Ended ended = run.program().wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("stopped at once by a second signal"),
                    HasSubstr(" are in no checkpoint; ckptd at "),
                    HasSubstr(" still has the snapshots of steps 1, 2"),
                    HasSubstr("which may become durable yet (ckptctl log tiny); nothing is "
                              "durable yet")));
  held_.reset();
  EXPECT_EQ(daemon_.ctl({"wait", "tiny@1", "--timeout", "60s"}).code(), 0) << "it did";
}

}  // namespace
}  // namespace systemtest
