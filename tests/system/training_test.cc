// Whole training runs: real ranks, a real ckptd, real kill -9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "tests/system/programs.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    // Text of our own: results do not change with the sources.
    std::ofstream text(data_, std::ios::binary);
    for (int i = 0; i < 3000; ++i)
      text << "step " << i * i % 997 << " of expert " << i % 13 << '\n';
  }
  // Arguments of a tiny run; `more` comes last.
  std::vector<std::string> arguments(const std::string& report, std::vector<std::string> more) {
    std::vector<std::string> all = {"run",
                                    "--run",
                                    "tiny",
                                    "--data",
                                    data_,
                                    "--hidden",
                                    "16",
                                    "--heads",
                                    "2",
                                    "--kv-heads",
                                    "1",
                                    "--head-dim",
                                    "8",
                                    "--intermediate",
                                    "24",
                                    "--experts",
                                    "4",
                                    "--seq",
                                    "16",
                                    "--batch",
                                    "4",
                                    "--report",
                                    folder_ / report};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Runs to the end, which must be a good one; the report.
  json train(const std::string& report, std::vector<std::string> more) {
    const Ended ended = run("moetrain", arguments(report, std::move(more)));
    EXPECT_EQ(ended.code(), 0) << ended.err;
    last_error_output_ = ended.err;
    auto document = json::parse(read_file(folder_ / report), nullptr, false);
    EXPECT_TRUE(document.is_object()) << ended.err;
    return document;
  }
  static std::map<uint64_t, std::string> bits(const json& report) {
    std::map<uint64_t, std::string> result;
    for (const json& loss : report.at("losses")) result[loss.at("step")] = loss.at("loss_bits");
    return result;
  }
  static std::map<uint64_t, double> losses(const json& report) {
    std::map<uint64_t, double> result;
    for (const json& loss : report.at("losses")) result[loss.at("step")] = loss.at("loss");
    return result;
  }
  Folder folder_;
  const std::string data_ = folder_ / "text.txt";
  std::string last_error_output_;
};

TEST_F(TrainingTest, AKilledRankChangesNoBit) {
  const std::vector<std::string> same = {"--ranks", "4", "--steps", "14", "--checkpoint-every",
                                         "3"};
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
}

TEST_F(TrainingTest, SeveralRanksMayDieAtOnceAndAgain) {
  const std::vector<std::string> same = {"--ranks", "3", "--steps", "10", "--checkpoint-every",
                                         "4"};
  auto with = same;
  with.insert(with.end(), {"--kill", "0@2", "--kill", "1@6", "--kill", "2@6", "--kill", "0@10"});
  const json killed = train("killed.json", with);
  EXPECT_EQ(bits(killed), bits(train("quiet.json", same)));
  std::set<uint32_t> lost;
  for (const json& failure : killed.at("failures")) {
    for (const uint32_t rank : failure.at("ranks")) lost.insert(rank);
  }
  EXPECT_THAT(lost, testing::ElementsAre(0, 1, 2));
}

TEST_F(TrainingTest, AnotherNumberOfRanksResumesTheSameRun) {
  const std::string store = folder_ / "store";
  train("first.json",
        {"--ranks", "4", "--steps", "6", "--checkpoint-every", "3", "--data-dir", store});
  fs::copy(store, folder_ / "copy", fs::copy_options::recursive);
  const json four = train(
      "four.json", {"--ranks", "4", "--steps", "26", "--resume", "latest", "--data-dir", store});
  const json three = train("three.json", {"--ranks", "3", "--steps", "26", "--resume", "latest",
                                          "--data-dir", folder_ / "copy"});
  const auto expected = losses(four);
  const auto got = losses(three);
  ASSERT_EQ(expected.size(), 20u) << "steps 7 to 26";
  ASSERT_EQ(got.size(), 20u);
  for (const auto& [step, loss] : expected) {
    EXPECT_NEAR(got.at(step) / loss, 1.0, 1e-5) << "step " << step;
  }
}

TEST_F(TrainingTest, AResumedRunGoesOnAsIfItHadNotStopped) {
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

TEST_F(TrainingTest, AnAbandonedFutureIsNeverSeenAgain) {
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

TEST_F(TrainingTest, TheLossOfCkptdStopsNothingAndLosesNothing) {
  const std::string store = folder_ / "store";
  const std::string events = folder_ / "events.jsonl";
  const std::vector<std::string> same = {"--ranks", "3", "--steps", "40", "--checkpoint-every",
                                         "2"};
  auto with = same;
  for (const char* step : {"3", "9", "14", "22", "31"}) {
    with.insert(with.end(), {"--kill-daemon", step});
  }
  with.insert(with.end(), {"--data-dir", store, "--events", events});
  const json killed = train("killed.json", with);
  EXPECT_EQ(bits(killed), bits(train("quiet.json", same)));
  EXPECT_EQ(killed.at("failures").size(), 0u) << last_error_output_;
  EXPECT_GE(killed.at("daemon_failures").size(), 1u);

  std::set<uint64_t> announced;
  for (const json& event : read_lines(events)) {
    if (event.at("event") == "snapshot" && event.value("durable", false)) {
      announced.insert(event.at("step").get<uint64_t>());
    }
  }
  EXPECT_TRUE(announced.contains(40)) << "the last one";
  const Ckptd daemon(store);
  std::set<uint64_t> listed;
  for (const json& commit : daemon.ctl({"log", "tiny"}).json()) {
    listed.insert(commit.at("step").get<uint64_t>());
  }
  for (const uint64_t step : announced) EXPECT_TRUE(listed.contains(step)) << "step " << step;
  const Ended verified = daemon.ctl({"verify"});
  EXPECT_EQ(verified.code(), 0) << verified.out << verified.err;
}

TEST_F(TrainingTest, ASignalSavesTheStepAndEndsWell) {
  const std::string store = folder_ / "store";
  const std::string metrics = folder_ / "metrics.jsonl";
  Program program("moetrain", arguments("stopped.json",
                                        {"--ranks", "2", "--steps", "1000000", "--checkpoint-every",
                                         "0", "--data-dir", store, "--metrics", metrics}));
  ASSERT_TRUE(await_line(metrics, [](const json& line) { return line.at("step") >= 3; }));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--resume latest"));
  const json report = json::parse(read_file(folder_ / "stopped.json"));
  const uint64_t last = report.at("losses").back().at("step");
  const json more = train("more.json", {"--ranks", "2", "--steps", std::to_string(last + 2),
                                        "--resume", "latest", "--data-dir", store});
  EXPECT_EQ(more.at("losses")[0].at("step"), last + 1);
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

struct Refusal {
  const char* name;
  std::vector<std::string> flags;
  int code;
  const char* says;
};

TEST_F(TrainingTest, RefusesBadInputInOneSentence) {
  const std::string empty = folder_ / "empty.txt";
  std::ofstream(empty).close();
  const std::string short_text = folder_ / "short.txt";
  std::ofstream(short_text) << "too short";
  const Refusal refusals[] = {
      {"missing data", {"--data", folder_ / "none.txt"}, 2, "none.txt"},
      {"empty data", {"--data", empty}, 2, "empty.txt: the file is empty"},
      {"short data", {"--data", short_text}, 2, "too few"},
      {"more ranks than sequences", {"--ranks", "5"}, 2, "more ranks than the 4 sequences"},
      {"more ranks than experts", {"--ranks", "5", "--batch", "8"}, 2, "than the 4 experts"},
      {"no such preset", {"--preset", "huge"}, 2, "tiny, small"},
      {"kill of nobody", {"--ranks", "2", "--kill", "2@3"}, 2, "ranks 0 to 1"},
      {"kill of nothing", {"--kill", "x"}, 2, "RANK@STEP"},
      {"join", {"--join", "1@5"}, 2, "--join"},
      {"continue", {"--on-loss", "continue"}, 2, "--on-loss continue"},
      {"resume from nonsense", {"--resume", "soon"}, 2, "--resume soon"},
      {"unknown run", {"--resume", "latest"}, 3, "tiny"},
      {"no such flag", {"--stpes", "3"}, 2, "--stpes"},
      {"run name", {"--run", "a/b"}, 2, "--run 'a/b'"},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::string> flags = refusal.flags;
    // A repeated --data would be read as a second file: the first one is left out.
    std::vector<std::string> all = arguments("r.json", {});
    if (flags[0] == "--data") all.erase(all.begin() + 3, all.begin() + 5);
    if (flags[0] == "--run") all.erase(all.begin() + 1, all.begin() + 3);
    if (flags.size() > 2 && flags[2] == "--batch") {
      const auto batch = std::find(all.begin(), all.end(), "--batch");
      all.erase(batch, batch + 2);
    }
    all.insert(all.end(), flags.begin(), flags.end());
    const Ended ended = run("moetrain", all);
    EXPECT_EQ(ended.code(), refusal.code) << refusal.name << ": " << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(refusal.says)) << refusal.name;
  }
}

TEST_F(TrainingTest, RefusesAResumeThatWouldNotGoOnAsBefore) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "2", "--steps", "4", "--seed", "7", "--data-dir", store});
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> all =
        arguments("r.json", {"--ranks", "2", "--steps", "6", "--data-dir", store});
    all.insert(all.end(), more.begin(), more.end());
    return run("moetrain", all);
  };
  const Ended other_seed = refused({"--resume", "latest", "--seed", "8"});
  EXPECT_EQ(other_seed.code(), 2) << other_seed.err;
  EXPECT_THAT(other_seed.err, HasSubstr("seed 7, not 8"));
  const Ended no_such_step = refused({"--resume", "3"});
  EXPECT_EQ(no_such_step.code(), 3) << no_such_step.err;
  const Ended fresh = refused({"--seed", "7"});
  EXPECT_NE(fresh.code(), 0) << "the run exists already";
  EXPECT_THAT(fresh.err, HasSubstr("tiny"));
}

TEST_F(TrainingTest, ALossThatIsNotFiniteEndsTheRunWithItsReason) {
  const Ended ended = run(
      "moetrain", arguments("nan.json", {"--ranks", "2", "--steps", "200", "--lr", "1e6",
                                         "--warmup", "0", "--clip", "0", "--weight-decay", "1e6"}));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("not finite"));
}

}  // namespace
}  // namespace systemtest
