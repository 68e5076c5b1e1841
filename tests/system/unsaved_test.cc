// A run whose ckptd does not answer: training continues, reports it, and stops on request.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/signals.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Largest stall of a step, with room for a busy machine. Stalls of 5 s and more are a regression.
constexpr double kStallMsMax = 4'000;

class UnsavedTest : public TrainingTest {
 protected:
  // A run that does not end by itself, with a checkpoint every `every` steps.
  std::unique_ptr<WatchedRun> start(const std::string& socket, const std::string& every = "3",
                                    const Flags& more = {}) {
    const std::string events = folder_ / "events";
    return std::make_unique<WatchedRun>(
        "moetrain",
        arguments("r.json", Flags{"--ranks", "2", "--steps", "1000000", "--checkpoint-every", every,
                                  "--socket", "unix:" + socket, "--events", events} +
                                more),
        events);
  }
  static bool is_durable(const json& event) {
    return event.at("event") == "snapshot" && event.value("durable", false);
  }
  static bool says(const json& event, const std::string& text) {
    return event.at("event") == "notice" && event.value("text", "").find(text) != std::string::npos;
  }
  static size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }
  // Longest stall of all steps so far.
  static double worst_stall_ms(WatchedRun& run) {
    double worst = 0;
    for (const json& event : run.events()) {
      if (event.at("event") == "step") worst = std::max(worst, event.value("stall_ms", 0.0));
    }
    return worst;
  }
};

TEST_F(UnsavedTest, DeadCkptdIsReportedAndSignalEndsRun) {
  Ckptd daemon(folder_ / "store");
  ASSERT_TRUE(daemon.await_ready());
  const auto run = start(daemon.socket());
  ASSERT_TRUE(run->await(is_durable)) << run->program().wait().err;
  daemon.signal(SIGKILL);
  ASSERT_TRUE(run->await([](const json& event) {
    return says(event, "no checkpoint since step ") && says(event, "does not answer; retrying");
  }));
  ASSERT_TRUE(run->await_steps(20)) << "training goes on";
  EXPECT_LT(worst_stall_ms(*run), kStallMsMax);
  run->program().signal(SIGTERM);
  const Ended ended = run->program().wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("stopped by SIGTERM, without a last checkpoint: ckptd at "));
  EXPECT_EQ(count_of(ended.err, "are in no checkpoint"), 1u) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("\nthe newest durable checkpoint is of step "));
  EXPECT_THAT(ended.err, Not(HasSubstr("another rank")));
  const json report = read_report("r.json");
  ASSERT_EQ(report.at("unsaved").size(), 1u) << ended.err;
  const json& unsaved = report["unsaved"][0];
  EXPECT_EQ(unsaved.at("since"), report.at("saved_step"));
  EXPECT_GT(unsaved.at("until"), unsaved.at("since"));
  EXPECT_FALSE(unsaved.at("saved"));
  EXPECT_THAT(unsaved.at("cause").get<std::string>(), HasSubstr("does not answer"));
}

TEST_F(UnsavedTest, TrainingDoesNotWaitForStoppedCkptd) {
  Ckptd daemon(folder_ / "store");
  ASSERT_TRUE(daemon.await_ready());
  const auto run = start(daemon.socket());
  ASSERT_TRUE(run->await(is_durable)) << run->program().wait().err;
  daemon.signal(SIGSTOP);
  ASSERT_TRUE(
      run->await([](const json& event) { return says(event, "no checkpoint since step "); }));
  ASSERT_TRUE(run->await_steps(20)) << "training goes on";
  EXPECT_LT(worst_stall_ms(*run), kStallMsMax);
  const uint64_t since = run->newest_step();
  daemon.signal(SIGCONT);
  ASSERT_TRUE(run->await([](const json& event) { return says(event, "answers again"); }));
  ASSERT_TRUE(run->await([&](const json& event) {
    return is_durable(event) && event.at("step").get<uint64_t>() > since;
  }));
  const Ended ended = run->stop();
  EXPECT_THAT(ended.err, HasSubstr("no checkpoint after step ")) << "the summary has it, too";
  const json report = read_report("r.json");
  ASSERT_FALSE(report.at("unsaved").empty()) << ended.err;
  EXPECT_TRUE(report["unsaved"][0].at("saved"));
  EXPECT_EQ(report.at("saved_step"), report.at("losses").back().at("step"));
}

TEST_F(UnsavedTest, SignalEndsRunWithFailedLastCheckpoint) {
  // A ckptd whose reserve is larger than the free space, as if other users had filled the disk.
  const std::filesystem::space_info space = std::filesystem::space(folder_.path());
  const uint64_t reserve = (space.capacity + space.available) / 2;
  Ckptd daemon(folder_ / "store", {"--disk-reserve", std::to_string(reserve) + "B"});
  ASSERT_TRUE(daemon.await_ready());
  const auto run = start(daemon.socket());
  ASSERT_TRUE(run->await([](const json& event) {
    return event.at("event") == "snapshot" && !event.value("durable", false);
  })) << run->program().wait().err;
  run->program().signal(SIGTERM);
  const Ended ended = run->program().wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  const size_t told = ended.err.find("moetrain: ckptd takes no checkpoints now: ");
  ASSERT_NE(told, std::string::npos) << ended.err;
  EXPECT_LT(told, ended.err.find("step 1")) << "before the first step";
  EXPECT_THAT(ended.err, HasSubstr("moetrain: stopped by SIGTERM, without a last checkpoint: "));
  EXPECT_THAT(ended.err, HasSubstr("are in no checkpoint; nothing was saved"));
}

TEST_F(UnsavedTest, UnsavedLimitSavesAndStopsRun) {
  Ckptd daemon(folder_ / "store");
  ASSERT_TRUE(daemon.await_ready());
  const auto run = start(daemon.socket(), "0", {"--unsaved-max", "20", "--on-unsaved", "stop"});
  const Ended ended = run->program().wait();
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("more than the 20 of --unsaved-max"));
  EXPECT_THAT(ended.err, HasSubstr("--resume latest continues"));
  const json report = read_report("r.json");
  EXPECT_EQ(report.at("saved_step"), report.at("losses").back().at("step"));
}

TEST_F(UnsavedTest, UnsavedLimitStopsRestartedRanks) {
  Ckptd daemon(folder_ / "store");
  ASSERT_TRUE(daemon.await_ready());
  const auto run = start(daemon.socket(), "0", {"--unsaved-max", "500", "--on-unsaved", "stop"});
  ASSERT_TRUE(run->await_step(3)) << run->program().wait().err;
  daemon.signal(SIGSTOP);  // so that no snapshot becomes durable before the ranks die
  ASSERT_TRUE(run->await([](const json& event) { return says(event, "the ranks save and stop"); }));
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(run->signal_rank(rank, SIGKILL));
  daemon.signal(SIGCONT);
  const Ended ended = run->program().wait();
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("starting all again"));
  EXPECT_THAT(ended.err, HasSubstr("more than the 500 of --unsaved-max"));
}

class StopSignalTest : public TrainingTest, public testing::WithParamInterface<int> {};

TEST_P(StopSignalTest, SavesTheStepAndExits) {
  const std::string store = folder_ / "store";
  const std::string metrics = folder_ / "metrics.jsonl";
  Program program("moetrain",
                  arguments("r.json", {"--ranks", "2", "--steps", "1000000", "--checkpoint-every",
                                       "0", "--data-dir", store, "--metrics", metrics}));
  ASSERT_TRUE(await_line(metrics, [](const json& line) { return line.at("step") >= 3; }));
  // Schedulers signal every process of a job, including ranks and our own ckptd.
  const auto children = program.children();
  program.signal(GetParam());
  for (const Program::Child& child : children) (void)ckpt::test::send_signal(child.pid, GetParam());
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + GetParam()) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--resume latest"));
  const json report = read_report("r.json");
  EXPECT_EQ(report.at("saved_step"), report.at("losses").back().at("step"));
  EXPECT_EQ(report.at("failures"), json::array()) << "the signal ended a rank";
  EXPECT_EQ(report.at("daemon_failures"), json::array()) << "the signal ended ckptd";
}

INSTANTIATE_TEST_SUITE_P(All, StopSignalTest,
                         testing::Values(SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGXCPU),
                         [](const auto& test) { return ::sigabbrev_np(test.param); });

TEST_F(UnsavedTest, SignalInheritedAsIgnoredStopsNothing) {
  Ckptd daemon(folder_ / "store");
  ASSERT_TRUE(daemon.await_ready());
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  const auto run = start(daemon.socket());
  ::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(run->await_step(3)) << run->program().wait().err;
  run->program().signal(SIGHUP);
  ASSERT_TRUE(run->signal_rank(0, SIGHUP));
  ASSERT_TRUE(run->await_steps(20));
  (void)run->stop();
}

}  // namespace
}  // namespace systemtest
