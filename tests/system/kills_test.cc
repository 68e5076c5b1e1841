// kill -9 from outside, at random moments, of ranks and of ckptd.
//
// Every play prints its seed. CKPT_KILL_SEED sets the first seed, CKPT_KILL_PLAYS the number of
// plays. The moment of a kill depends on the machine too, so a seed repeats a play only roughly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "tests/support/signals.h"
#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

uint64_t setting(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoull(value, nullptr, 10);
}

bool is_ckptd(const Program::Child& child) { return child.arguments[0].ends_with("/ckptd"); }
bool is_rank(const Program::Child& child) {
  return child.arguments.size() > 1 && child.arguments[1] == "rank";
}

size_t count(const std::string& text, const std::string& needle) {
  size_t found = 0;
  for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1)) {
    ++found;
  }
  return found;
}

class KillsTest : public TrainingTest {
 protected:
  uint64_t seed(uint64_t play) {
    const uint64_t chosen = setting("CKPT_KILL_SEED", 1) + play;
    std::cout << "CKPT_KILL_SEED=" << chosen << std::endl;
    return chosen;
  }
  // Kills a random child of the program that `wanted` accepts, as soon as there is one. False if
  // the program ended first, or no such child appears.
  bool kill_one(Program& program, bool (*wanted)(const Program::Child&), std::mt19937_64& random) {
    return program.await_children([&] {
      std::vector<Program::Child> children = program.children();
      std::erase_if(children, [&](const auto& child) { return !wanted(child); });
      return !children.empty() &&
             ckpt::test::send_signal(children[random() % children.size()].pid, SIGKILL);
    });
  }
  // Checks ckptd's history after the run: every announced snapshot is there, every byte is good.
  void expect_history(const std::string& store, const std::string& events, uint64_t last) {
    std::set<uint64_t> announced;
    for (const json& event : read_lines(events)) {
      if (event.at("event") == "snapshot" && event.value("durable", false)) {
        announced.insert(event.at("step").get<uint64_t>());
      }
    }
    EXPECT_TRUE(announced.contains(last)) << "the last one";
    const Ckptd daemon(store);
    std::set<uint64_t> listed;
    for (const json& commit : daemon.ctl({"log", "tiny"}).json()) {
      listed.insert(commit.at("step").get<uint64_t>());
    }
    for (const uint64_t step : announced) EXPECT_TRUE(listed.contains(step)) << "step " << step;
    const Ended verified = daemon.ctl({"verify"});
    EXPECT_EQ(verified.code(), 0) << verified.out << verified.err;
  }
};

// Each moment is a step plus a random time, chosen so that all kills hit before the end.
TEST_F(KillsTest, TrainingSurvivesFiveCkptdDeaths) {
  constexpr uint64_t kSteps = 60;
  constexpr uint64_t kKills = 5;
  const std::vector<std::string> same = {
      "--ranks", "3", "--steps", std::to_string(kSteps), "--checkpoint-every", "2"};
  const std::string store = folder_ / "store";
  const std::string events = folder_ / "events.jsonl";
  const std::string metrics = folder_ / "metrics.jsonl";
  auto with = same;
  with.insert(with.end(), {"--data-dir", store, "--events", events, "--metrics", metrics});

  std::mt19937_64 random(seed(0));
  std::set<uint64_t> steps;
  while (steps.size() < kKills) steps.insert(1 + random() % (kSteps - 15));
  Program program("moetrain", arguments("killed.json", with));
  for (const uint64_t step : steps) {
    ASSERT_TRUE(program.await([&] { return read_lines(metrics).size() >= step; }));
    // A random moment of the next step: no event is awaited.
    std::this_thread::sleep_for(milliseconds(random() % 20));
    ASSERT_TRUE(kill_one(program, is_ckptd, random)) << program.wait().err;
  }
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 0) << ended.err;
  EXPECT_EQ(count(ended.err, "ckptd is lost"), kKills) << ended.err;
  const json killed = read_report("killed.json");
  EXPECT_EQ(killed.at("failures").size(), 0u) << ended.err;
  EXPECT_EQ(bits(killed), bits(train("quiet.json", same)));
  expect_history(store, events, kSteps);
}

// The commit of the last checkpoint races with the death of a rank that contributed to it. The run
// ends in either case: with that checkpoint, or with one that the replacement rank contributes to.
TEST_F(KillsTest, RunEndsDespiteDeathInLastCheckpoint) {
  const std::vector<std::string> same = {"--ranks", "2", "--steps", "3", "--checkpoint-every", "2"};
  const auto expected = bits(train("quiet.json", same));
  const uint64_t plays = setting("CKPT_KILL_PLAYS", 8);
  for (uint64_t play = 0; play < plays; ++play) {
    std::mt19937_64 random(seed(play));
    const std::string name = "last" + std::to_string(play);
    const std::string store = folder_ / name;
    const std::string events = folder_ / (name + ".jsonl");
    auto with = same;
    with.insert(with.end(), {"--on-loss", "restart", "--data-dir", store, "--events", events});
    Program program("moetrain", arguments(name + ".json", with));
    ASSERT_TRUE(
        await_line(events, [](const json& event) { return event.at("event") == "saving"; }));
    // A random moment of the last snapshot: no event is awaited.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    kill_one(program, is_rank, random);  // no-op if all ranks have ended
    const Ended ended = program.wait();
    ASSERT_EQ(ended.code(), 0) << ended.err;
    EXPECT_EQ(bits(read_report(name + ".json")), expected) << ended.err;
    expect_history(store, events, 3);
  }
}

// Kills may hit while the group forms, twice in a row, and together with ckptd.
TEST_F(KillsTest, RandomDeathsChangeNoBit) {
  constexpr uint64_t kSteps = 30;
  constexpr int kKillsMax = 6;
  const std::vector<std::string> same = {
      "--ranks", "4",        "--steps", std::to_string(kSteps), "--checkpoint-every",
      "3",       "--layers", "4"};
  const auto expected = bits(train("quiet.json", same));
  ASSERT_EQ(expected.size(), kSteps);
  const uint64_t plays = setting("CKPT_KILL_PLAYS", 3);
  for (uint64_t play = 0; play < plays; ++play) {
    std::mt19937_64 random(seed(play));
    const std::string name = "play" + std::to_string(play);
    const std::string store = folder_ / name;
    const std::string events = folder_ / (name + ".jsonl");
    auto with = same;
    with.insert(with.end(), {"--data-dir", store, "--events", events, "--on-loss", "restart",
                             "--restarts-max", "20"});
    Program program("moetrain", arguments(name + ".json", with));
    for (int kill = 0; kill < kKillsMax; ++kill) {
      // A random moment is the point of the test: no event is awaited.
      std::this_thread::sleep_for(milliseconds(20 + random() % 300));
      const bool victim_is_ckptd = random() % 4 == 0;
      if (!kill_one(program, victim_is_ckptd ? is_ckptd : is_rank, random)) break;
    }
    const Ended ended = program.wait();
    ASSERT_EQ(ended.code(), 0) << ended.err;
    EXPECT_EQ(bits(read_report(name + ".json")), expected) << ended.err;
    expect_history(store, events, kSteps);
  }
}

}  // namespace
}  // namespace systemtest
