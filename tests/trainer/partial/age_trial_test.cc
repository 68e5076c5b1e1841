#include "trainer/partial/age_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

namespace moetrain {
namespace {

constexpr ExpertGrid kSmallGrid{4, 16};

// Relative loads of a layer's experts between two snapshots, in any unit.
using Shares = std::function<std::vector<double>(uint32_t snapshot, uint32_t layer)>;

// Saves snapshots with one selector. Before each snapshot, adds the tokens that a failure would
// lose.
class Saving {
 public:
  Saving(Selector selector, uint32_t k)
      : options_{selector, k, default_staleness_max(kSmallGrid.experts, k)},
        ledger_(std::vector<SaveLedger::Saved>(kSmallGrid.size(), {.snapshot = 1})),
        held_(kSmallGrid.size()) {
    trial_.begin(ledger_, {});
  }

  void snapshot(const std::vector<int64_t>& tokens) {
    ++number_;
    for (size_t i = 0; i < held_.size(); ++i) held_[i] += tokens[i];
    for (size_t i = 0; i < held_.size(); ++i) lost_ += held_[i] - ledger_[i].tokens;
    const CandidateOf candidate_of = [this](const SaveLedger& ledger, size_t expert) {
      return ExpertCandidate{.unsaved_tokens = held_[expert] - ledger[expert].tokens,
                             .age = number_ - ledger[expert].snapshot,
                             .loss_probability = 1,
                             .turn = static_cast<uint32_t>(expert % kSmallGrid.experts)};
    };
    if (options_.selector == Selector::kAgeAware) {
      trial_.take({number_, 0, held_}, kSmallGrid, options_, candidate_of);
      options_.age_weight = trial_.score().weight;
    }
    chosen_ = choose_experts(kSmallGrid, options_, ledger_, candidate_of);
    ledger_.take(number_, chosen_, held_);
  }
  void fail() {
    ledger_.fail(number_);
    trial_.fail(number_);
  }
  void restart() { trial_.begin(ledger_, trial_.score()); }

  int64_t lost() const { return lost_; }  // sum over all possible failures
  const std::vector<uint32_t>& chosen() const { return chosen_; }
  const AgeTrialScore& score() const { return trial_.score(); }
  bool weighs_age() const { return score().weight != AgeWeight::kNone; }
  int64_t held_in_all() const { return std::accumulate(held_.begin(), held_.end(), int64_t{0}); }

 private:
  SelectionOptions options_;
  SaveLedger ledger_;
  AgeTrial trial_;
  std::vector<int64_t> held_;
  std::vector<uint32_t> chosen_;
  uint64_t number_ = 1;
  int64_t lost_ = 0;
};

std::vector<int64_t> tokens_of(const Shares& shares, uint32_t snapshot) {
  std::vector<int64_t> tokens;
  for (uint32_t layer = 0; layer < kSmallGrid.layers; ++layer) {
    const std::vector<double> of_layer = shares(snapshot, layer);
    const double all = std::accumulate(of_layer.begin(), of_layer.end(), 0.0);
    for (const double share : of_layer) {
      tokens.push_back(static_cast<int64_t>(8192 * share / all));
    }
  }
  return tokens;
}

// Ratio of the losses of age-aware and load-aware, for K = 1, 2 and 4 together. Checks that
// age-aware takes the same experts as load-aware until it first weighs age.
double ratio_to_load_aware(const Shares& shares, uint32_t snapshots) {
  double lost[2] = {};
  std::vector<std::vector<int64_t>> trace;
  trace.reserve(snapshots);
  for (uint32_t at = 0; at < snapshots; ++at) trace.push_back(tokens_of(shares, at));
  for (const uint32_t k : {1, 2, 4}) {
    Saving ours(Selector::kAgeAware, k);
    Saving theirs(Selector::kLoadAware, k);
    bool weighed = false;
    for (const auto& tokens : trace) {
      ours.snapshot(tokens);
      theirs.snapshot(tokens);
      weighed |= ours.weighs_age();
      if (!weighed) {
        EXPECT_EQ(ours.chosen(), theirs.chosen());
      }
    }
    lost[0] += static_cast<double>(ours.lost());
    lost[1] += static_cast<double>(theirs.lost());
  }
  return lost[0] / lost[1];
}

std::vector<double> each_expert(const std::function<double(uint32_t)>& share) {
  std::vector<double> shares;
  shares.reserve(kSmallGrid.experts);
  for (uint32_t e = 0; e < kSmallGrid.experts; ++e) shares.push_back(share(e));
  return shares;
}

TEST(AgeTrialTest, LosesLessWhereLoadsStay) {
  const auto zipf = [](uint32_t, uint32_t layer) {
    return each_expert([&](uint32_t e) { return 1.0 / (1 + (e + layer) % 16); });
  };
  EXPECT_LT(ratio_to_load_aware(zipf, 250), 0.91);
  const auto slowly = [](uint32_t at, uint32_t) {
    return each_expert([&](uint32_t e) { return 1.0 / (1 + (e + at / 5) % 16); });
  };
  EXPECT_LT(ratio_to_load_aware(slowly, 250), 0.95);
}

// Too few snapshots to judge: the cost of a change could not be earned back.
TEST(AgeTrialTest, IsLoadAwareWhereThereAreFewSnapshots) {
  const auto zipf = [](uint32_t, uint32_t layer) {
    return each_expert([&](uint32_t e) { return 1.0 / (1 + (e + layer) % 16); });
  };
  EXPECT_EQ(ratio_to_load_aware(zipf, 15), 1);
}

TEST(AgeTrialTest, IsLoadAwareWhereAllExpertsAreAlike) {
  const auto uniform = [](uint32_t, uint32_t) { return std::vector<double>(16, 1); };
  EXPECT_EQ(ratio_to_load_aware(uniform, 100), 1);
  for (const uint32_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto bursts = [&](uint32_t, uint32_t) {
      const uint32_t hot = random() % 16;
      return each_expert([&](uint32_t e) { return e == hot ? 40.0 : 1.0; });
    };
    EXPECT_EQ(ratio_to_load_aware(bursts, 250), 1);
    std::normal_distribution<double> normal;
    for (const double deviation : {0.5, 1.0, 2.0}) {
      const auto log_normal = [&](uint32_t, uint32_t) {
        return each_expert([&](uint32_t) { return std::exp(deviation * normal(random)); });
      };
      EXPECT_LT(ratio_to_load_aware(log_normal, 250), 1.002) << "deviation " << deviation;
    }
  }
}

// The next expert is certain to be hot, and neither rule can know it.
TEST(AgeTrialTest, LosesNoMoreWhereTheHotOneMovesOn) {
  for (const uint32_t by : {1, 3, 5, 15}) {
    const auto moving = [&](uint32_t at, uint32_t) {
      return each_expert([&](uint32_t e) { return 1.0 / (1 + (e + by * at) % 16); });
    };
    EXPECT_LE(ratio_to_load_aware(moving, 250), 1.0005) << "by " << by;
  }
}

TEST(AgeTrialTest, FollowsLoadsThatChangeTheirWays) {
  const uint32_t seed = 9;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Shares steady = [](uint32_t, uint32_t) {
    return each_expert([](uint32_t e) { return 1.0 / (1 + e); });
  };
  const Shares bursts = [&](uint32_t, uint32_t) {
    const uint32_t hot = random() % 16;
    return each_expert([&](uint32_t e) { return e == hot ? 40.0 : 1.0; });
  };
  Saving saving(Selector::kAgeAware, 2);
  EXPECT_FALSE(saving.weighs_age()) << "nothing has proved anything yet";
  for (const bool stay : {true, false, true}) {
    for (uint32_t at = 0; at < 150; ++at) saving.snapshot(tokens_of(stay ? steady : bursts, at));
    EXPECT_EQ(saving.weighs_age(), stay);
  }
}

// Loads that stay for a while, are shuffled, or are independent of each other, in turns.
Shares moody(std::mt19937& random) {
  std::vector<double> order;
  for (uint32_t e = 0; e < kSmallGrid.experts; ++e) order.push_back(1.0 / (1 + e));
  return [&random, order, bursts = false, left = 0u](uint32_t, uint32_t layer) mutable {
    if (layer == 0 && left-- == 0) {
      left = 5 + random() % 60;
      bursts = random() % 3 == 0;
      std::ranges::shuffle(order, random);
    }
    if (!bursts) return order;
    const uint32_t hot = random() % kSmallGrid.experts;
    return each_expert([&](uint32_t e) { return e == hot ? 40.0 : 1.0; });
  };
}

// The trial's account of its own saves is exact, to the token, at any time. Therefore every change
// is paid for, and its overdraft is bounded.
TEST(AgeTrialTest, SpendsNoMoreThanThereIs) {
  uint32_t changes = 0;
  uint32_t stops = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Shares shares = moody(random);
    const uint32_t k = 1u << seed % 3;
    Saving ours(Selector::kAgeAware, k);
    Saving theirs(Selector::kLoadAware, k);
    for (uint32_t at = 1; at <= 300; ++at) {
      const AgeTrialScore before = ours.score();
      const std::vector<int64_t> tokens = tokens_of(shares, at);
      ours.snapshot(tokens);
      theirs.snapshot(tokens);
      const AgeTrialScore& score = ours.score();
      const auto lost = static_cast<double>(theirs.lost());
      const double behind = static_cast<double>(ours.lost()) - lost;
      ASSERT_DOUBLE_EQ(score.lost, lost);
      ASSERT_EQ(score.ahead, -behind);
      if (!ours.weighs_age()) continue;
      EXPECT_GE(at, AgeTrial::kSnapshotsMin);
      EXPECT_GE(at, kSmallGrid.experts / k) << "a round";
      const AgeTrialScore::Rule& rule = score.rules[static_cast<size_t>(score.weight)];
      const double credit = AgeTrial::kCredit * lost;
      EXPECT_LE(behind, credit + std::max(AgeTrial::kDebtMax * lost, rule.behind_max));
      if (before.weight != AgeWeight::kNone) continue;
      ++changes;
      EXPECT_LE(behind + std::ldexp(rule.behind_max, static_cast<int>(score.stops)), credit);
    }
    stops += ours.score().stops;
  }
  EXPECT_GT(changes, 20u);
  EXPECT_GT(stops, 5u);
}

TEST(AgeTrialTest, GoesOnAfterRestarts) {
  const Shares steady = [](uint32_t, uint32_t) {
    return each_expert([](uint32_t e) { return 1.0 / (1 + e); });
  };
  Saving saving(Selector::kAgeAware, 2);
  for (uint32_t at = 1; at <= 400; ++at) {
    saving.snapshot(tokens_of(steady, at));
    if (at % 40 == 0) {
      const AgeTrialScore score = saving.score();
      saving.restart();
      EXPECT_EQ(saving.score(), score);
      EXPECT_TRUE(saving.weighs_age()) << at;
    }
  }
}

// If every snapshot fails, all rules lose everything.
TEST(AgeTrialTest, SnapshotsThatFailSaveNothing) {
  Saving saving(Selector::kAgeAware, 4);
  const std::vector<int64_t> tokens(kSmallGrid.size(), 10);
  double lost = 0;
  double recent = 0;
  for (int at = 0; at < 60; ++at) {
    saving.snapshot(tokens);
    saving.fail();
    const auto all = static_cast<double>(saving.held_in_all());
    lost += all;
    recent += all - recent / 16;
    EXPECT_DOUBLE_EQ(saving.score().lost, lost);
    EXPECT_EQ(saving.score().ahead, 0);
    for (const AgeTrialScore::Rule& rule : saving.score().rules) {
      EXPECT_NEAR(rule.recent, recent, 1e-9 * recent);
      EXPECT_EQ(rule.ahead, 0);
    }
  }
}

// Expert 3 is rolled back to an older version; its newer tokens can no longer be lost.
TEST(AgeTrialTest, ExpertsThatComeBackAreAsOldAsTheyAre) {
  constexpr ExpertGrid kOneLayer{1, 4};
  AgeTrial trial;
  trial.begin(SaveLedger(std::vector<SaveLedger::Saved>(4, {.snapshot = 1})), {});
  std::vector<int64_t> held = {100, 100, 100, 100};
  const CandidateOf candidate_of = [&](const SaveLedger& ledger, size_t expert) {
    return ExpertCandidate{.unsaved_tokens = held[expert] - ledger[expert].tokens};
  };
  trial.take_all({2, 0, held});
  held[3] = 30;
  trial.came_back(3, {.snapshot = 1, .tokens = 30, .step = 0});
  held[0] = 107;
  trial.take({3, 0, held}, kOneLayer, {Selector::kAgeAware, 1, 16}, candidate_of);
  for (const AgeTrialScore::Rule& rule : trial.score().rules) EXPECT_EQ(rule.recent, 7);
  EXPECT_EQ(trial.score().lost, 7);
}

TEST(AgeTrialTest, AScoreIsOfTokens) {
  const AgeTrialScore fine{.judged = 2,
                           .lost = 100,
                           .ahead = -5,
                           .stops = AgeTrial::kStopsMax,
                           .weight = AgeWeight::kFull,
                           .rules = {{{3, 0, 0}, {2, -1, 2}, {2.5, 1, 0}}}};
  EXPECT_TRUE(check_score({}).ok());
  EXPECT_TRUE(check_score(fine).ok());
  const auto expect_refused = [&](const auto& spoil, const char* why) {
    AgeTrialScore score = fine;
    spoil(score);
    ASSERT_FALSE(check_score(score).ok());
    EXPECT_THAT(check_score(score).error().message, testing::HasSubstr(why));
  };
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    expect_refused([&](AgeTrialScore& s) { s.judged = wrong; }, "a trial of");
    expect_refused([&](AgeTrialScore& s) { s.lost = wrong; }, "tokens ahead of");
    expect_refused([&](AgeTrialScore& s) { s.rules[0].recent = wrong; }, "a rule that loses");
    expect_refused([&](AgeTrialScore& s) { s.rules[2].behind_max = wrong; }, "behind");
    if (wrong == -1) continue;
    expect_refused([&](AgeTrialScore& s) { s.ahead = wrong; }, "tokens ahead of");
    expect_refused([&](AgeTrialScore& s) { s.rules[1].ahead = wrong; }, "ahead and was");
  }
  expect_refused([](AgeTrialScore& s) { ++s.stops; }, "stopped 65 times");
  expect_refused([](AgeTrialScore& s) { s.weight = AgeWeight{3}; }, "follows rule 3");
}

}  // namespace
}  // namespace moetrain
