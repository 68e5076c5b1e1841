// A history with several resumes: every commit that the log lists can be shown, verified, exported,
// evaluated and resumed by a name that the log prints, and nothing is lost or moved by asking.
#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "tests/support/held_calls.h"
#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HistoryTest : public TrainingTest {
 protected:
  static Flags with(const Flags& more) {
    Flags all = {"--ranks", "1", "--checkpoint-every", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Lineage 1 has steps 2 to 6, lineage 2 continues from step 2 to 4, lineage 3 from step 6 of
  // lineage 1 to 8. Only a name with a lineage (~1@6) reaches that step 6.
  void train_three_lineages() {
    const auto run_on = [&](const char* steps, const char* commit) {
      Flags flags = with({"--steps", steps, "--data-dir", store_});
      if (*commit != '\0') flags.insert(flags.end(), {"--resume", commit});
      train("r.json", flags);
    };
    run_on("6", "");
    run_on("4", "2");
    run_on("8", "~1@6");
  }
  Ended moetrain_on(const Ckptd& daemon, const Flags& more) {
    Flags flags = with({"--socket", "unix:" + daemon.socket()});
    flags.insert(flags.end(), more.begin(), more.end());
    return run("moetrain", arguments("again.json", flags));
  }

  const std::string store_ = folder_ / "store";
};

TEST_F(HistoryTest, EveryListedCommitIsUsableByName) {
  train_three_lineages();
  const Ckptd daemon(store_);
  const json log = daemon.ctl({"log", "tiny", "--all"}).json();
  std::set<std::string> names;
  for (const json& commit : log) names.insert(commit.at("name"));
  EXPECT_EQ(names, (std::set<std::string>{"tiny@2", "tiny@4", "tiny@6", "tiny@8", "tiny~2@4"}));
  EXPECT_EQ(daemon.ctl({"log", "tiny"}).json().size(), 4u) << "the current line alone";
  for (const json& commit : log) {
    const std::string name = commit.at("name");
    const json shown = daemon.ctl({"show", name}).json();
    EXPECT_EQ(shown.at("lineage"), commit.at("lineage")) << name;
    EXPECT_EQ(daemon.ctl({"verify", name}).code(), 0) << name;
    EXPECT_EQ(daemon.ctl({"restore", "--plan", name}).code(), 0) << name;
    EXPECT_EQ(daemon.ctl({"experts", name}).json().at("lineage"), commit.at("lineage")) << name;
    EXPECT_EQ(daemon.ctl({"wait", name, "--timeout", "5s"}).code(), 0) << name;
    const std::string out = folder_ / ("out-" + name);
    EXPECT_EQ(daemon.ctl({"export", name, "--out", out}).json().at("lineage"), commit.at("lineage"))
        << name;
    const Ended evaluated = run("moetrain", {"eval", name, "--socket", "unix:" + daemon.socket(),
                                             "--data", data_, "--sequences", "1", "--json"});
    EXPECT_EQ(evaluated.code(), 0) << name << evaluated.err;
    EXPECT_EQ(evaluated.json().at("lineage"), commit.at("lineage")) << name;
    // Resumed where nothing is left to train, which says so and changes nothing.
    const Ended done = moetrain_on(
        daemon, {"--resume", name, "--steps", std::to_string(commit.at("step").get<int>())});
    EXPECT_EQ(done.code(), 0) << name << done.err;
    EXPECT_THAT(done.err, HasSubstr("already done: tiny~")) << name;
    EXPECT_EQ(read_report("again.json").at("saved_step"), commit.at("step")) << name;
  }
  EXPECT_EQ(daemon.ctl({"log", "tiny", "--all"}).json(), log);
  EXPECT_EQ(daemon.ctl({"show", "tiny@latest"}).json().at("step"), 8) << "latest stays";

  EXPECT_EQ(daemon.ctl({"tag", "tiny~2@4", "good"}).code(), 0);
  const Ended resumed = moetrain_on(daemon, {"--resume", "good", "--steps", "5"});
  EXPECT_EQ(resumed.code(), 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resumed at step 4 (1 rank, epoch 4, lineage 4)"));
  EXPECT_THAT(resumed.err, HasSubstr("1 step (5 to 5) of")) << "what it has trained, not all";
  const Ended tree =
      run("ckptctl", {"log", "tiny", "--all", "--socket", "unix:" + daemon.socket()});
  EXPECT_THAT(tree.out, HasSubstr("|/"));
}

// Regression: a prune removed bytes that eval had not read yet.
TEST_F(HistoryTest, EvalHoldsCommitItReads) {
  train("r.json", with({"--steps", "4", "--data-dir", store_}));
  Ckptd daemon(store_, {"--io", "pwritev"});
  ASSERT_TRUE(daemon.await_ready());
  std::optional<ckpt::test::HeldCalls> reads;
  reads.emplace(daemon.pid(), std::set<long>{SYS_preadv2}, "/segments/");
  Program eval("moetrain", {"eval", "tiny@2", "--socket", "unix:" + daemon.socket(), "--data",
                            data_, "--sequences", "1"});
  // A held read alone shows no reader: the daemon reads segments for itself, too.
  ASSERT_TRUE(reads->await_one(std::chrono::minutes(1)));
  ASSERT_TRUE(eval.await_children([&] {  // no file changes with a hold
    const Ended status = daemon.ctl({"status"});
    return status.code() == 0 && !status.json().at("holds").empty();
  })) << eval.error_output();
  // Not --keep-last: snapshots that overlap may be committed in any order.
  EXPECT_EQ(daemon.ctl({"tag", "tiny@4", "good"}).code(), 0);
  const Flags prune = {"prune", "tiny", "--keep-tag", "good", "--yes"};
  const Ended pruned = daemon.ctl(prune);
  EXPECT_EQ(pruned.code(), 0) << pruned.err;
  EXPECT_THAT(pruned.err, HasSubstr("tiny~1@2 is kept although no rule keeps it: it is held by "
                                    "moetrain (process "));
  const Ended removed = daemon.ctl({"rm", "tiny@2", "--yes"});
  EXPECT_EQ(removed.code(), 1);
  EXPECT_THAT(removed.err, HasSubstr("held by moetrain"));
  reads.reset();
  const Ended evaluated = eval.wait();
  EXPECT_EQ(evaluated.code(), 0) << evaluated.err;
  const json gone = daemon.ctl(prune).json();
  EXPECT_EQ(gone.at("removed").size(), 1u) << "the hold went with the session";
}

TEST_F(HistoryTest, ErrorNamesStepOfOtherLineage) {
  train_three_lineages();
  train("r.json", with({"--steps", "3", "--data-dir", store_, "--resume", "2"}));
  const Ckptd daemon(store_);
  const Ended shown = daemon.ctl({"show", "tiny@6"});
  EXPECT_EQ(shown.code(), 3);
  EXPECT_THAT(shown.err, HasSubstr("tiny~1@6"));
  const Ended resumed = moetrain_on(daemon, {"--resume", "6", "--steps", "9"});
  EXPECT_EQ(resumed.code(), 3) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("tiny~1@6"));
  const Ended evaluated =
      run("moetrain", {"eval", "tiny@6", "--socket", "unix:" + daemon.socket(), "--data", data_});
  EXPECT_EQ(evaluated.code(), 3);
  EXPECT_THAT(evaluated.err, HasSubstr("tiny~1@6"));
}

TEST_F(HistoryTest, RefusesOtherDataWithoutNewDataFlag) {
  train("r.json", with({"--steps", "2", "--data-dir", store_}));
  const std::string other = folder_ / "other.txt";
  std::filesystem::copy_file(data_, other);
  std::ofstream(other, std::ios::app) << "one line more\n";
  const auto resume = [&](const char* steps, Flags more) {
    more.insert(more.end(),
                {"--data", other, "--data-dir", store_, "--resume", "latest", "--steps", steps});
    return run("moetrain", arguments("other.json", with(more)));
  };
  const Ended refused = resume("4", {});
  EXPECT_EQ(refused.code(), 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("run tiny step 2 was trained on other data"));
  EXPECT_THAT(refused.err, HasSubstr("--new-data"));
  {
    const Ckptd daemon(store_);
    EXPECT_EQ(daemon.ctl({"log", "tiny"}).json().size(), 1u) << "nothing was changed";
  }
  const Ended taken = resume("4", {"--new-data"});
  EXPECT_EQ(taken.code(), 0) << taken.err;
  EXPECT_THAT(taken.err,
              testing::ContainsRegex("the data has changed since \\(.* with CRC32C [0-9a-f]{8} "
                                     "then, .* with [0-9a-f]{8} now\\)"));
  EXPECT_EQ(resume("5", {}).code(), 0) << "it is the run's data now";
}

TEST_F(HistoryTest, EventsHaveRankTimeAndLossBits) {
  const std::string events = folder_ / "events.jsonl";
  const Ended ended =
      run("moetrain", arguments("r.json", {"--ranks", "2", "--steps", "2", "--events", events}));
  EXPECT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("temporary and is removed now; --data-dir DIR keeps it"));
  size_t steps = 0;
  for (const json& event : read_lines(events)) {
    EXPECT_TRUE(event.contains("rank")) << event;
    EXPECT_THAT(event.value("time", ""), testing::EndsWith("Z")) << event;
    if (event.at("event") != "step") continue;
    EXPECT_EQ(event.at("loss_bits").get<std::string>().size(), 8u) << event;
    ++steps;
  }
  EXPECT_EQ(steps, 4u);
}

}  // namespace
}  // namespace systemtest
