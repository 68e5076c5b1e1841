// The summary that a run prints at its end, and what `moetrain report` says of it later.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class SummaryTest : public TrainingTest {
 protected:
  std::string shown_report(const std::string& report) {
    const Ended shown = run("moetrain", {"report", folder_ / report});
    EXPECT_EQ(shown.code(), 0) << shown.err;
    return shown.out;
  }
};

// In a group that restarts, rank 0 completes step 8 without rank 1; in a group that continues, it
// does not.
TEST_F(SummaryTest, FailureShowsSameStepInLogAndTable) {
  for (const std::string on_loss : {"restart", "continue"}) {
    const json report = train(on_loss, {"--ranks", "2", "--steps", "12", "--checkpoint-every", "3",
                                        "--on-loss", on_loss, "--kill", "1@8"});
    EXPECT_THAT(last_error_output_, HasSubstr("rank 1 is lost at step 8 ("));
    EXPECT_THAT(last_error_output_, ContainsRegex("\nat step +lost .*\n +8  rank 1 "));
    EXPECT_THAT(shown_report(on_loss), ContainsRegex("\nat step +lost .*\n +8  rank 1 "));
    EXPECT_EQ(report.at("failures").at(0).at("at_step"), 8);
  }
}

TEST_F(SummaryTest, RunPrintsSocketOfItsCkptd) {
  train("r.json", {"--ranks", "1", "--steps", "2", "--checkpoint-every", "0"});
  EXPECT_THAT(last_error_output_, ContainsRegex("moetrain: `ckptctl --socket unix:/[^ ]+ status` "
                                                "shows this run's ckptd\n"));
}

TEST_F(SummaryTest, PlacementSvgWithoutReplansIsExplained) {
  const json report = train(
      "left.json", {"--ranks", "2", "--steps", "8", "--checkpoint-every", "0", "--leave", "1@3"});
  ASSERT_EQ(report.at("changes").size(), 1u) << last_error_output_;
  const Ended drawn =
      run("moetrain", {"report", folder_ / "left.json", "--placement-svg", folder_ / "moves.svg"});
  EXPECT_EQ(drawn.code(), 1) << "there is no picture";
  EXPECT_THAT(drawn.err,
              HasSubstr("left.json: experts moved only as ranks joined or left; a report "
                        "has the placements of moves by --replan-every alone"));
  train("still.json", {"--ranks", "1", "--steps", "2", "--checkpoint-every", "0"});
  const Ended none =
      run("moetrain", {"report", folder_ / "still.json", "--placement-svg", folder_ / "moves.svg"});
  EXPECT_THAT(none.err, HasSubstr("still.json: no experts moved by --replan-every"));
}

TEST_F(SummaryTest, CkptdLossShowsSameStepInOutput) {
  const json report = train("r.json", {"--ranks", "1", "--steps", "2000", "--checkpoint-every",
                                       "1000", "--kill-daemon", "5"});
  ASSERT_EQ(report.at("daemon_failures").size(), 1u) << last_error_output_;
  const auto step = report["daemon_failures"][0].at("step").get<uint64_t>();
  EXPECT_THAT(last_error_output_, HasSubstr(fmt::format("ckptd is lost at step {};", step)));
  EXPECT_THAT(last_error_output_, ContainsRegex(fmt::format("\n +{}  ckptd ", step)));
}

TEST_F(SummaryTest, FailedRunReportsTrainedAndSavedSteps) {
  const std::string store = folder_ / "store";
  const Ended ended =
      run("moetrain",
          arguments("r.json", {"--ranks", "2", "--steps", "12", "--checkpoint-every", "3",
                               "--on-loss", "restart", "--restarts-max", "0", "--checkpoint-wait",
                               "durable", "--kill", "1@8", "--data-dir", store}));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("moetrain: rank 1 is lost at step 8 ("));
  EXPECT_THAT(ended.err, HasSubstr(" steps of 64 tokens on 2 ranks, loss "));
  EXPECT_THAT(ended.err, HasSubstr("\nthe newest durable checkpoint is of step 6\n"));
  EXPECT_THAT(ended.err, ContainsRegex("\nsteps? 7.* in no checkpoint; --resume latest continues"));
  EXPECT_EQ(ended.err.find("in no checkpoint"), ended.err.rfind("in no checkpoint")) << "said once";
  EXPECT_EQ(ended.out, "") << "the summary is where that of a good run is";
  const json report = read_report("r.json");
  ASSERT_EQ(report.at("failures").size(), 1u);
  EXPECT_EQ(report["failures"][0].at("ranks"), json({1}));
  EXPECT_TRUE(report["failures"][0].at("resumed_ms").is_null()) << "it never trained again";
  EXPECT_THAT(shown_report("r.json"),
              AllOf(ContainsRegex("\n +8  rank 1 .* not back "), Not(HasSubstr("no failures"))));
}

TEST_F(SummaryTest, ReportNamesStepsUnsavedWithoutCkptd) {
  Ckptd daemon(folder_ / "store");
  ASSERT_TRUE(daemon.await_ready());
  const std::string events = folder_ / "events";
  WatchedRun watched(
      "moetrain",
      arguments("r.json", {"--ranks", "2", "--steps", "1000000", "--checkpoint-every", "3",
                           "--socket", "unix:" + daemon.socket(), "--events", events}),
      events);
  ASSERT_TRUE(watched.await([](const json& event) {
    return event.at("event") == "snapshot" && event.value("durable", false);
  }));
  daemon.signal(SIGKILL);
  ASSERT_TRUE(watched.await([](const json& event) {
    return event.at("event") == "notice" &&
           event.value("text", "").find("no checkpoint since step ") != std::string::npos;
  }));
  ASSERT_TRUE(watched.await_steps(20));
  watched.program().signal(SIGTERM);
  const Ended ended = watched.program().wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(" steps of 64 tokens on 2 ranks, loss ")) << "the summary";
  EXPECT_THAT(ended.err, HasSubstr("\nthe newest durable checkpoint is of step "));
  EXPECT_THAT(shown_report("r.json"),
              AllOf(ContainsRegex("\n +[0-9]+  checkpoints .* does not answer; steps [0-9]+ to "
                                  "[0-9]+ are in no checkpoint"),
                    Not(HasSubstr("no failures"))));
}

}  // namespace
}  // namespace systemtest
