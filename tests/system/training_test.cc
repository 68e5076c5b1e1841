// Whole training runs: real ranks, a real ckptd, real kill -9.
#include "tests/system/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TEST_F(TrainingTest, KilledRankChangesNoBit) {
  const std::vector<std::string> same = {
      "--ranks", "4", "--steps", "14", "--checkpoint-every", "3", "--micro-batches", "2"};
  auto with = same;
  with.insert(with.end(), {"--on-loss", "restart", "--kill", "2@8"});
  const json quiet = train("quiet.json", same);
  const json killed = train("killed.json", with);
  ASSERT_EQ(bits(quiet).size(), 14u);
  EXPECT_EQ(bits(killed), bits(quiet));
  EXPECT_EQ(quiet.at("failures").size(), 0u);
  ASSERT_EQ(killed.at("failures").size(), 1u);
  const json& failure = killed.at("failures")[0];
  EXPECT_EQ(failure.at("ranks"), json({2}));
  EXPECT_GE(failure.at("step"), 7);
  EXPECT_GE(failure.at("steps_lost"), 1);
  EXPECT_LE(failure.at("steps_lost"), 8);
  EXPECT_GE(failure.at("resumed_ms"), failure.at("detected_ms"));
  const json& bytes = failure.at("bytes");
  EXPECT_GT(bytes.at("memory").get<uint64_t>() + bytes.at("disk").get<uint64_t>(), 0u);
  EXPECT_EQ(failure.at("stale_units"), 0);
  EXPECT_EQ(quiet.at("tokens_per_step"), 2 * 4 * 16);
  EXPECT_EQ(quiet.at("checkpoints").at("count"), 5) << "steps 3, 6, 9, 12 and the last";
  for (const json& checkpoint : quiet["checkpoints"].at("each")) {
    EXPECT_GT(checkpoint.at("stall_ms"), 0);
    EXPECT_EQ(checkpoint.at("parts_ms").size(), 8u);
    for (const auto& [part, ms] : checkpoint["parts_ms"].items()) EXPECT_GT(ms, 0) << part;
  }
}

TEST_F(TrainingTest, RepeatedRankDeathsChangeNoBit) {
  const std::vector<std::string> same = {"--ranks", "3", "--steps", "10", "--checkpoint-every",
                                         "4"};
  auto with = same;
  with.insert(with.end(), {"--on-loss", "restart", "--kill", "0@2", "--kill", "1@6", "--kill",
                           "2@6", "--kill", "0@10"});
  const json killed = train("killed.json", with);
  EXPECT_EQ(bits(killed), bits(train("quiet.json", same)));
  std::set<uint32_t> lost;
  for (const json& failure : killed.at("failures")) {
    for (const uint32_t rank : failure.at("ranks")) lost.insert(rank);
  }
  EXPECT_THAT(lost, testing::ElementsAre(0, 1, 2));
}

TEST_F(TrainingTest, OtherRankCountResumesWithSameBits) {
  const std::string store = folder_ / "store";
  // A learning rate at which the loss changes: a difference in the last digit would grow.
  train("first.json", {"--ranks", "4", "--steps", "6", "--checkpoint-every", "3", "--lr", "0.003",
                       "--warmup", "5", "--data-dir", store});
  fs::copy(store, folder_ / "copy", fs::copy_options::recursive);
  const json four = train(
      "four.json", {"--ranks", "4", "--steps", "56", "--resume", "latest", "--data-dir", store});
  const json three = train("three.json", {"--ranks", "3", "--steps", "56", "--resume", "latest",
                                          "--data-dir", folder_ / "copy"});
  const auto loss = losses(four);
  ASSERT_EQ(loss.size(), 50u) << "steps 7 to 56";
  EXPECT_LT(loss.rbegin()->second, 0.8 * loss.begin()->second) << "it learns";
  EXPECT_EQ(bits(three), bits(four));
}

TEST_F(TrainingTest, ResumeChangesNoBit) {
  const std::string store = folder_ / "store";
  const json whole =
      train("whole.json", {"--ranks", "2", "--steps", "9", "--checkpoint-every", "0"});
  train("begin.json", {"--ranks", "2", "--steps", "4", "--data-dir", store});
  const json rest = train(
      "rest.json", {"--ranks", "2", "--steps", "9", "--resume", "latest", "--data-dir", store});
  auto expected = bits(whole);
  for (uint64_t step = 1; step <= 4; ++step) expected.erase(step);
  EXPECT_EQ(bits(rest), expected);
}

TEST_F(TrainingTest, StepsOfAbandonedLineageAreHidden) {
  const std::string store = folder_ / "store";
  const std::vector<std::string> base = {"--ranks", "2",          "--checkpoint-every",
                                         "3",       "--data-dir", store};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const json first = train("first.json", with({"--steps", "12"}));
  for (const char* report : {"again.json", "oncemore.json"}) {
    const json again = train(report, with({"--steps", "6", "--resume", "3"}));
    for (const auto& [step, loss_bits] : bits(again)) {
      EXPECT_EQ(loss_bits, bits(first).at(step)) << report << " step " << step;
    }
  }
  const Ckptd daemon(store);
  const json shown = daemon.ctl({"show", "tiny@latest"}).json();
  EXPECT_EQ(shown.at("step"), 6);
  EXPECT_TRUE(shown.at("complete"));
  for (const json& unit : shown.at("units")) {
    EXPECT_EQ(unit.at("version_step"), 6) << unit.at("unit");
  }
  EXPECT_EQ(daemon.ctl({"show", "tiny@12"}).code(), 3) << "a step of the abandoned future";
  EXPECT_EQ(daemon.ctl({"show", "tiny@9"}).code(), 3);
  EXPECT_EQ(daemon.ctl({"show", "tiny@3"}).code(), 0) << "the fork itself";
  EXPECT_EQ(daemon.ctl({"verify"}).code(), 0);
}

TEST_F(TrainingTest, SignalSavesStepAndEndsRun) {
  const std::string store = folder_ / "store";
  const std::string metrics = folder_ / "metrics.jsonl";
  Program program("moetrain", arguments("stopped.json",
                                        {"--ranks", "2", "--steps", "1000000", "--checkpoint-every",
                                         "0", "--data-dir", store, "--metrics", metrics}));
  ASSERT_TRUE(await_line(metrics, [](const json& line) { return line.at("step") >= 3; }));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--resume latest"));
  const json report = json::parse(read_file(folder_ / "stopped.json"));
  const uint64_t last = report.at("losses").back().at("step");
  const json more = train("more.json", {"--ranks", "2", "--steps", std::to_string(last + 2),
                                        "--resume", "latest", "--data-dir", store});
  EXPECT_EQ(more.at("losses")[0].at("step"), last + 1);
}

// The ranks learn of the stop at a boundary where a snapshot of some experts has begun; the last
// snapshot, of all experts, replaces it.
TEST_F(TrainingTest, StopAtDueSnapshotSavesStepOnce) {
  const std::string store = folder_ / "store";
  const std::string metrics = folder_ / "metrics.jsonl";
  Program program("moetrain", arguments("stopped.json",
                                        {"--ranks", "2", "--steps", "1000000", "--checkpoint-every",
                                         "1", "--experts-per-checkpoint", "1", "--checkpoint-wait",
                                         "durable", "--data-dir", store, "--metrics", metrics}));
  ASSERT_TRUE(await_line(
      metrics, [](const json& line) { return line.contains("loss") && line.at("step") >= 3; }));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("failed")));
  const json report = json::parse(read_file(folder_ / "stopped.json"));
  const uint64_t last = report.at("losses").back().at("step");
  EXPECT_EQ(report.at("checkpoints").at("count"), last) << "one for each step";
  const json more = train("more.json", {"--ranks", "2", "--steps", std::to_string(last + 2),
                                        "--resume", "latest", "--data-dir", store});
  EXPECT_EQ(more.at("losses")[0].at("step"), last + 1);
  EXPECT_EQ(more.at("plt"), 0) << "the last checkpoint has every expert";
}

TEST_F(TrainingTest, StoppedRunWithTemporaryStoreOffersNoResume) {
  const std::string metrics = folder_ / "metrics.jsonl";
  Program program("moetrain", arguments("stopped.json", {"--ranks", "2", "--steps", "1000000",
                                                         "--metrics", metrics}));
  ASSERT_TRUE(await_line(metrics, [](const json& line) { return line.at("step") >= 3; }));
  program.signal(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGINT) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("goes with the temporary folder"));
  EXPECT_THAT(ended.err, testing::Not(HasSubstr("--resume latest")));
}

TEST_F(TrainingTest, SignalAtStartLeavesNoTemporaryFolder) {
  const std::string temporary = folder_ / "tmp";
  fs::create_directories(temporary);
  ASSERT_EQ(::setenv("TMPDIR", temporary.c_str(), 1), 0);
  Program program("moetrain", arguments("r.json", {"--ranks", "2"}));
  ::unsetenv("TMPDIR");
  const auto left_behind = [&] {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(temporary)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("moetrain-")) found.push_back(name);
    }
    return found;
  };
  // Earliest moment to stop: the folder exists, and no rank has trained.
  while (program.running() && left_behind().empty()) {
  }
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("stopped by SIGTERM"));
  EXPECT_THAT(left_behind(), testing::IsEmpty());
}

TEST_F(TrainingTest, WaitForMissingDaemonIsReported) {
  const std::string socket = folder_ / "none";
  Program program("moetrain", arguments("r.json", {"--socket", "unix:" + socket}));
  EXPECT_TRUE(program.await_error_output("waiting for ckptd at unix:" + socket));
  EXPECT_TRUE(program.running());
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().code(), 128 + SIGINT);
}

TEST_F(TrainingTest, EvaluatesASavedRun) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "2", "--steps", "30", "--lr", "0.01", "--checkpoint-every", "10",
                       "--data-dir", store});
  const Ckptd daemon(store);
  const auto loss_of = [&](const std::string& target) {
    const Ended ended = run("moetrain", {"eval", target, "--socket", "unix:" + daemon.socket(),
                                         "--data", data_, "--json", "--logits", folder_ / "l"});
    EXPECT_EQ(ended.code(), 0) << ended.err;
    return ended.json();
  };
  const json early = loss_of("tiny@10");
  const json late = loss_of("tiny");
  EXPECT_EQ(early.at("step"), 10);
  EXPECT_EQ(late.at("step"), 30);
  EXPECT_LT(late.at("loss"), early.at("loss"));
  EXPECT_LT(late.at("loss"), std::log(256.0));
  EXPECT_EQ(late.at("logits").at("tokens").size(), 16u);
  EXPECT_EQ(read_file(folder_ / "l").size(), 16 * 256 * sizeof(float));
  EXPECT_EQ(
      run("moetrain", {"eval", "none@3", "--socket", daemon.socket(), "--data", data_}).code(), 3);
}

TEST_F(TrainingTest, NonFiniteLossEndsRunWithReason) {
  const Ended ended = run(
      "moetrain", arguments("nan.json", {"--ranks", "2", "--steps", "200", "--lr", "1e6",
                                         "--warmup", "0", "--clip", "0", "--weight-decay", "1e6"}));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("not finite"));
}

}  // namespace
}  // namespace systemtest
