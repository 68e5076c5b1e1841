// Whole runs with replicated experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ReplicasTest : public TrainingTest {
 protected:
  static std::vector<std::string> with(std::vector<std::string> first,
                                       const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
};

// Replicas, the number of ranks and a kill do not change any number.
TEST_F(ReplicasTest, PlacementAndKillChangeNoBit) {
  const std::vector<std::string> same = {"--steps", "12",    "--checkpoint-every", "3",
                                         "--lr",    "0.003", "--micro-batches",    "2"};
  const json one = train("one.json", with(same, {"--ranks", "1"}));
  const json replicated =
      train("replicated.json",
            with(same, {"--ranks", "3", "--placement", "lazarus", "--slots", "3", "--min-replicas",
                        "2", "--check-replicas", "1", "--on-loss", "restart", "--kill", "1@8",
                        "--metrics", folder_ / "metrics.jsonl"}));
  EXPECT_EQ(bits(replicated), bits(one));
  ASSERT_EQ(replicated.at("failures").size(), 1u);
  ASSERT_EQ(replicated.at("loads").size(), 12u);
  const double tokens = 2.0 * 4 * 16 * 2 * 2;  // two choices in each of two layers
  for (const json& load : replicated.at("loads")) {
    EXPECT_NEAR(load.at("busiest_tokens").get<double>() * 3 / tokens,
                load.at("max_over_mean").get<double>(), 1e-9);
    EXPECT_GE(load.at("max_over_mean"), 1);
  }
  size_t lines = 0;
  for (const json& line : read_lines(folder_ / "metrics.jsonl")) {
    lines += line.contains("busiest_tokens") && line.contains("max_over_mean") ? 1 : 0;
  }
  EXPECT_GE(lines, 12u);
  EXPECT_EQ(one.at("max_over_mean"), 1) << "a rank alone has what there is";
}

// Any placement restores what another placement saved, partial checkpoints included.
TEST_F(ReplicasTest, AnyPlacementResumesAnySavedPlacement) {
  const std::string store = folder_ / "store";
  const std::vector<std::string> lr = {"--lr", "0.003", "--checkpoint-every", "2"};
  const json whole = train("whole.json", with(lr, {"--ranks", "2", "--steps", "12"}));
  std::map<uint64_t, std::string> parts;
  const std::vector<std::vector<std::string>> legs = {
      {"--ranks", "4", "--steps", "4", "--placement", "lazarus", "--slots", "2"},
      {"--ranks", "2", "--steps", "7", "--resume", "latest"},
      {"--ranks", "3", "--steps", "9", "--resume", "latest", "--placement", "lazarus", "--slots",
       "4", "--min-replicas", "3", "--check-replicas", "1", "--experts-per-checkpoint", "2"},
      {"--ranks", "1", "--steps", "12", "--resume", "latest", "--placement", "lazarus"}};
  for (size_t leg = 0; leg < legs.size(); ++leg) {
    const json report = train("leg" + std::to_string(leg) + ".json",
                              with(with(lr, legs[leg]), {"--data-dir", store}));
    for (const auto& [step, loss_bits] : bits(report)) parts[step] = loss_bits;
  }
  EXPECT_EQ(parts, bits(whole));
  const Ckptd daemon(store);
  EXPECT_EQ(daemon.ctl({"verify"}).code(), 0);
}

TEST_F(ReplicasTest, SkewedRoutingReproducesAndIsBalancedByReplicas) {
  const std::vector<std::string> same = {"--steps", "8", "--router-skew",      "1.5",
                                         "--ranks", "2", "--checkpoint-every", "4"};
  const std::string store = folder_ / "store";
  const json fixed = train("fixed.json", with(same, {"--data-dir", store}));
  EXPECT_GT(fixed.at("max_over_mean"), 1.1);
  const json moved =
      train("moved.json", with(same, {"--data-dir", store, "--resume", "4", "--placement",
                                      "lazarus", "--slots", "4", "--min-replicas", "2"}));
  EXPECT_LT(moved.at("max_over_mean"), 1.02) << "every rank has every expert: within rounding";
  for (const auto& [step, loss_bits] : bits(moved)) EXPECT_EQ(loss_bits, bits(fixed).at(step));
}

TEST_F(ReplicasTest, RefusesInvalidPlacementFlagsBeforeStart) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Ended ended = run("moetrain", arguments("none.json", more));
    EXPECT_EQ(ended.code(), 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refusal({"--placement", "lucky"}), HasSubstr("lucky"));
  EXPECT_THAT(
      refusal({"--ranks", "2", "--placement", "lazarus", "--slots", "3", "--min-replicas", "2"}),
      HasSubstr("4 experts of at least 2 replicas need 8"));
  EXPECT_THAT(refusal({"--ranks", "2", "--placement", "lazarus", "--slots", "1"}),
              HasSubstr("slots"));
  EXPECT_THAT(refusal({"--ranks", "1", "--placement", "lazarus", "--slots", "10000"}),
              HasSubstr("--slots: unit trainer"));
  EXPECT_THAT(refusal({"--router-skew", "-1"}), HasSubstr("router_skew"));
}

// Around the largest number of slots of a checkpoint: refused at the start, or saved at the end.
TEST_F(ReplicasTest, AcceptedPlacementCanBeSaved) {
  int refused = 0;
  for (int slots = 2100; slots <= 2400; slots += 25) {
    SCOPED_TRACE(slots);
    const Ended ended =
        run("moetrain", arguments("none.json", {"--experts", "8", "--ranks", "1", "--steps", "1",
                                                "--placement", "lazarus", "--min-replicas", "1",
                                                "--slots", std::to_string(slots)}));
    refused += ended.code() == 2 ? 1 : 0;
    if (ended.code() != 0) {
      EXPECT_THAT(ended.err, HasSubstr("--slots: unit trainer"));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 13);
}

}  // namespace
}  // namespace systemtest
