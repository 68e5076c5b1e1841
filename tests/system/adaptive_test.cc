// Runs that choose their own interval and K, and alarms about experts that receive no updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class AdaptiveTest : public TrainingTest {
 protected:
  std::vector<json> events_of(const std::string& kind) const {
    std::vector<json> found;
    for (const json& event : read_lines(events_)) {
      if (event.at("event") == kind) found.push_back(event);
    }
    return found;
  }
  // Kind and unit of each alarm that `ckptctl alarms` lists.
  std::set<std::pair<std::string, std::string>> alarms(const std::string& store) const {
    const Ckptd daemon(store);
    std::set<std::pair<std::string, std::string>> all;
    for (const json& alarm : daemon.ctl({"alarms", "tiny"}).json()) {
      all.emplace(alarm.at("kind"), alarm.at("unit"));
    }
    return all;
  }

  const std::string events_ = folder_ / "events.jsonl";
};

TEST_F(AdaptiveTest, AutomaticIntervalsChangeNoBit) {
  const json fixed =
      train("fixed.json", {"--ranks", "2", "--steps", "60", "--checkpoint-every", "30"});
  EXPECT_EQ(fixed.at("checkpoint_every"), 30);
  EXPECT_EQ(fixed.at("reason"), "from flags and their defaults");
  const json report =
      train("auto.json", {"--ranks", "2", "--steps", "60", "--checkpoint-every", "auto",
                          "--on-loss", "restart", "--kill", "1@41", "--events", events_});
  EXPECT_EQ(bits(report), bits(fixed));
  EXPECT_GE(report.at("checkpoint_every"), 1);
  EXPECT_THAT(report.at("reason"), AllOf(HasSubstr("a step takes"), HasSubstr("1 failure in"),
                                         HasSubstr("storage sustains")));
  EXPECT_THAT(last_error_output_, HasSubstr("of 4 of 4 experts: a step takes"));
  // Every rank knows of the failure, including the replacement rank.
  std::set<uint64_t> reported;
  for (const json& training : events_of("training")) {
    if (training.at("epoch") > 1) reported.insert(training.value("failures", uint64_t{0}));
  }
  EXPECT_EQ(reported, std::set<uint64_t>{1});
}

TEST_F(AdaptiveTest, ResumeContinuesWithChosenInterval) {
  const std::string store = folder_ / "store";
  const json first = train("first.json", {"--ranks", "2", "--steps", "50", "--checkpoint-every",
                                          "auto", "--data-dir", store});
  EXPECT_EQ(first.at("on_loss_reason"), "the default");
  train("second.json", {"--ranks", "3", "--steps", "53", "--checkpoint-every", "auto", "--resume",
                        "latest", "--data-dir", store, "--events", events_});
  const std::vector<json> pacing = events_of("pacing");
  ASSERT_FALSE(pacing.empty());
  EXPECT_EQ(pacing[0].at("checkpoint_every"), first.at("checkpoint_every"));
  EXPECT_EQ(pacing[0].at("text"), "as before the resume");
  const json training = events_of("training").at(0);
  EXPECT_EQ(training.value("failures", uint64_t{0}), 0u) << "it had come to its end";
  EXPECT_GT(training.at("training_ms").get<double>(), 0);
}

TEST_F(AdaptiveTest, KilledRunCountsAsOneFailure) {
  const Ckptd daemon(folder_ / "store");
  const auto flags = [&](const std::string& events) {
    return std::vector<std::string>{"--ranks",
                                    "1",
                                    "--steps",
                                    "100000",
                                    "--socket",
                                    daemon.socket(),
                                    "--checkpoint-every",
                                    "auto",
                                    "--events",
                                    events};
  };
  {
    Program cut("moetrain", arguments("none.json", flags(events_)));
    ASSERT_TRUE(await_line(events_, [](const json& event) {
      return event.at("event") == "snapshot" && event.value("durable", false);
    }));
    cut.signal(SIGKILL);
    cut.wait();
  }
  const std::string again = folder_ / "again.jsonl";
  std::vector<std::string> more = flags(again);
  more.insert(more.end(), {"--resume", "latest"});
  Program resumed("moetrain", arguments("none.json", more));
  ASSERT_TRUE(await_line(again, [](const json& event) { return event.at("event") == "training"; }));
  resumed.signal(SIGINT);
  EXPECT_EQ(resumed.wait().code(), 130);
  for (const json& event : read_lines(again)) {
    if (event.at("event") == "training") {
      EXPECT_EQ(event.value("failures", uint64_t{0}), 1u);
    }
  }
}

TEST_F(AdaptiveTest, ReportsBytesPerRank) {
  const std::string metrics = folder_ / "metrics.jsonl";
  const json report = train("report.json", {"--ranks", "3", "--steps", "8", "--checkpoint-every",
                                            "4", "--metrics", metrics});
  const json& bytes = report.at("checkpoints").at("rank_bytes");
  EXPECT_GE(bytes.at("max").get<double>(), bytes.at("mean").get<double>());
  EXPECT_GE(bytes.at("max_over_mean").get<double>(), 1);
  size_t snapshots = 0;
  for (const json& line : read_lines(metrics)) {
    if (!line.contains("snapshot")) continue;
    // The snapshot has the planned bytes.
    const json& taken = report.at("checkpoints").at("each").at(snapshots++);
    EXPECT_EQ(line.at("snapshot"), taken.at("step"));
    EXPECT_EQ(line.at("bytes"), taken.at("bytes"));
    EXPECT_EQ(line.at("rank_bytes_max"), taken.at("rank_bytes_max"));
    EXPECT_NEAR(line.at("rank_bytes_mean").get<double>(), taken.at("rank_bytes_mean").get<double>(),
                1e-6);
  }
  EXPECT_EQ(snapshots, 2u);
  EXPECT_THAT(last_error_output_, HasSubstr("busiest rank"));
}

TEST_F(AdaptiveTest, UnchangedExpertRaisesAlarm) {
  const std::string store = folder_ / "store";
  train("frozen.json", {"--ranks", "2", "--steps", "6", "--checkpoint-every", "2", "--lr", "0",
                        "--data-dir", store});
  const auto raised = alarms(store);
  EXPECT_TRUE(raised.contains({"unchanged", "layers.0.experts.0.weights"}) ||
              raised.contains({"unchanged", "layers.0.experts.1.weights"}));
  for (const auto& [kind, unit] : raised) {
    EXPECT_EQ(kind, "unchanged");
    EXPECT_THAT(unit, AllOf(HasSubstr("experts"), HasSubstr(".weights")))
        << "moments change, and dense units hold them";
  }
}

TEST_F(AdaptiveTest, LearningRunRaisesNoAlarm) {
  const std::string store = folder_ / "store";
  train("moving.json",
        {"--ranks", "2", "--steps", "12", "--checkpoint-every", "2", "--experts-per-checkpoint",
         "2", "--on-loss", "restart", "--kill", "1@8", "--data-dir", store});
  EXPECT_TRUE(alarms(store).empty());
}

}  // namespace
}  // namespace systemtest
