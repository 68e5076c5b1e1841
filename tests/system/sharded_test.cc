// Runs with sharded experts: the bits of replicated ones, saved and resumed in any layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;

class ShardedTest : public TrainingTest {
 protected:
  // A learning rate at which the loss moves: a difference in the last digit would grow.
  json train_with(const std::string& report, Flags flags, const Flags& more) {
    flags.insert(flags.end(), {"--lr", "0.003", "--warmup", "2", "--micro-batches", "2"});
    flags.insert(flags.end(), more.begin(), more.end());
    return train(report, flags);
  }

  static std::map<uint64_t, std::string> from_step(std::map<uint64_t, std::string> bits,
                                                   uint64_t first) {
    std::erase_if(bits, [first](const auto& step) { return step.first < first; });
    return bits;
  }

  std::string write_nodes() {
    const std::string path = folder_ / "nodes.csv";
    std::ofstream(path) << "rank,node\n0,a\n1,a\n2,b\n3,b\n";
    return path;
  }

  // Names of the events of one step of one thread, in their order.
  static std::vector<std::string> thread_of(const json& trace, uint64_t step, uint32_t rank,
                                            uint32_t thread) {
    std::vector<std::string> names;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "M" || event.at("pid") != rank || event.at("tid") != thread) continue;
      if (event.at("args").at("step") == step) names.push_back(event.at("name"));
    }
    return names;
  }
  static bool in_order(const std::vector<std::string>& names, const Flags& wanted) {
    auto at = names.begin();
    for (const std::string& name : wanted) {
      at = std::find(at, names.end(), name);
      if (at == names.end()) return false;
    }
    return true;
  }

  const Flags sharded_ = {"--expert-state", "sharded"};
  const std::string nodes_ = write_nodes();
};

TEST_F(ShardedTest, MatchesBitsOfReplicatedExperts) {
  const Flags steps = {"--steps", "12", "--checkpoint-every", "0"};
  const auto expected = bits(train_with("whole.json", steps, {"--ranks", "1"}));
  ASSERT_EQ(expected.size(), 12u);
  const std::vector<Flags> runs = {
      {"--ranks", "2"},
      {"--ranks", "4"},
      {"--ranks", "4", "--placement", "laer"},
      {"--ranks", "3", "--placement", "eplb", "--slots", "3", "--replan-every", "2"},
      {"--ranks", "2", "--placement", "frontier", "--slots", "4"},
      {"--ranks", "4", "--placement", "laer", "--slots", "3", "--domains", nodes_},
      {"--ranks", "3", "--placement", "laer", "--prefetch", "0", "--reshard", "inline"},
      {"--ranks", "2", "--prefetch", "1", "--reshard", "delayed"},
      {"--ranks", "4", "--prefetch", "2", "--reshard", "inline"}};
  for (Flags flags : runs) {
    flags.insert(flags.end(), sharded_.begin(), sharded_.end());
    EXPECT_EQ(bits(train_with("sharded.json", steps, flags)), expected)
        << testing::PrintToString(flags);
  }
}

TEST_F(ShardedTest, IsSavedAndResumedInAnyLayout) {
  const auto expected = bits(
      train_with("whole.json", {"--steps", "12", "--checkpoint-every", "0"}, {"--ranks", "2"}));
  const std::string store = folder_ / "store";
  struct Stage {
    uint64_t first = 1;
    Flags flags;
  };
  const std::vector<Stage> stages = {
      {1, {"--steps", "4", "--ranks", "4", "--expert-state", "sharded"}},
      {5, {"--steps", "7", "--ranks", "3", "--resume", "latest"}},
      {8, {"--steps", "10", "--ranks", "2", "--expert-state", "sharded", "--resume", "latest"}},
      {11,
       {"--steps", "12", "--ranks", "4", "--expert-state", "sharded", "--placement", "laer",
        "--resume", "latest"}}};
  for (const Stage& stage : stages) {
    const json report = train_with("stage.json", stage.flags, {"--data-dir", store});
    auto wanted = from_step(expected, stage.first);
    std::erase_if(wanted, [&](const auto& step) { return step.first > stage.first + 3; });
    for (const auto& [step, loss_bits] : bits(report)) {
      EXPECT_EQ(loss_bits, wanted.at(step)) << "step " << step;
    }
    EXPECT_EQ(bits(report).begin()->first, stage.first);
  }
  const Ckptd daemon(store);
  EXPECT_EQ(daemon.ctl({"verify"}).code(), 0);
}

// Every rank saves equally many bytes, whichever experts a snapshot contains.
TEST_F(ShardedTest, SavesFewExpertsInEqualShares) {
  const Flags steps = {"--steps", "10", "--checkpoint-every", "2"};
  const json report =
      train_with("few.json", steps,
                 {"--ranks", "3", "--expert-state", "sharded", "--experts-per-checkpoint", "1"});
  const json& checkpoints = report.at("checkpoints");
  EXPECT_GE(checkpoints.at("count"), 4);
  EXPECT_LE(checkpoints.at("rank_bytes").at("max_over_mean").get<double>(), 1.01);
}

TEST_F(ShardedTest, KilledRankChangesNoBit) {
  const Flags flags = {"--steps",        "12",      "--checkpoint-every", "3",   "--ranks", "3",
                       "--expert-state", "sharded", "--placement",        "laer"};
  const json quiet = train_with("quiet.json", flags, {});
  const json killed = train_with("killed.json", flags, {"--kill", "1@8", "--domains", nodes_});
  EXPECT_EQ(bits(killed), bits(quiet));
  ASSERT_EQ(killed.at("failures").size(), 1u);
  EXPECT_EQ(killed.at("on_loss"), "continue");
}

// By the order of events, not by time: experts of layer 0 compute between the moment from which the
// restore of layer 1 may run and the one at which it must be done.
TEST_F(ShardedTest, ScheduleTraceShowsOverlap) {
  const Flags flags = {"--steps",  "5", "--checkpoint-every", "0",      "--ranks", "2",
                       "--layers", "3", "--expert-state",     "sharded"};
  const std::string file = folder_ / "trace.json";
  const Flags ahead = {"layer 0 token all-to-all", "layer 1 submit restore",
                       "layer 0 experts forward", "layer 1 wait for restore",
                       "layer 1 experts forward"};
  const Flags behind = {"layer 2 experts backward", "layer 2 submit re-shard",
                        "layer 1 experts backward", "layer 2 wait for re-shard"};
  for (const bool overlaps : {true, false}) {
    const Flags schedule =
        overlaps ? Flags{"--schedule-trace", file}
                 : Flags{"--schedule-trace", file, "--prefetch", "0", "--reshard", "inline"};
    train_with("traced.json", flags, schedule);
    const json trace = json::parse(read_file(file), nullptr, false);
    ASSERT_TRUE(trace.is_object());
    for (const uint64_t step : {1u, 2u, 3u}) {
      for (const uint32_t rank : {0u, 1u}) {
        const auto compute = thread_of(trace, step, rank, 0);
        EXPECT_EQ(in_order(compute, ahead), overlaps);
        EXPECT_EQ(in_order(compute, behind), overlaps);
        const auto beside = thread_of(trace, step, rank, 1);
        EXPECT_EQ(in_order(beside, {"layer 0 restore", "layer 1 restore", "layer 2 restore",
                                    "layer 2 re-shard", "layer 0 re-shard"}),
                  overlaps);
        EXPECT_EQ(beside.empty(), !overlaps);
      }
    }
    EXPECT_TRUE(thread_of(trace, 4, 0, 0).empty()) << "three steps";
  }
}

// Bytes by the closed forms of static placement: of every expert each of two ranks owns a half and
// one computes it.
TEST_F(ShardedTest, ReportsBytesWaitsAndMemory) {
  const std::string metrics = folder_ / "metrics.jsonl";
  const json report = train_with(
      "exchange.json", {"--steps", "6", "--checkpoint-every", "0"},
      {"--ranks", "2", "--layers", "3", "--expert-state", "sharded", "--metrics", metrics});
  constexpr uint64_t kHalf = 3 * 16 * 24 / 2;
  constexpr uint64_t kLayersAndBatches = 3 * 2;
  const json& exchange = report.at("exchange");
  EXPECT_EQ(exchange.at("steps"), 6);
  EXPECT_EQ(exchange.at("restore_bytes"), 4 * 2 * kHalf * 4 * kLayersAndBatches);
  EXPECT_EQ(exchange.at("reshard_bytes"), 4 * kHalf * 8 * kLayersAndBatches);
  EXPECT_GT(exchange.at("token_bytes"), 0);
  EXPECT_GT(exchange.at("exposed_ms"), 0);
  EXPECT_GE(exchange.at("hidden_ms"), 0);
  EXPECT_LE(exchange.at("memory_bytes"), exchange.at("memory_bound"));
  EXPECT_EQ(exchange.at("memory_bound"), 24 * 4 * 3 * kHalf + 2 * 2 * kHalf * (3 * 4 + 2 * 8 + 16));
  std::istringstream lines(read_file(metrics));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line).at("restore_bytes"), exchange.at("restore_bytes"));
  const Ended shown = run("moetrain", {"report", folder_ / "exchange.json"});
  EXPECT_NE(shown.out.find("re-shards/step"), std::string::npos) << shown.out;
}

}  // namespace
}  // namespace systemtest
