#include "trainer/partial/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "trainer/partial/plt.h"
#include "trainer/placement/lazarus.h"
#include "trainer/placement/recovery.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Selections of one layer, snapshot after snapshot.
class Layer {
 public:
  Layer(SelectionOptions options, uint32_t experts) : options_(options), candidates_(experts) {
    for (uint32_t expert = 0; expert < experts; ++expert) candidates_[expert].turn = expert;
  }
  std::vector<ExpertCandidate>& candidates() { return candidates_; }

  std::vector<uint32_t> snapshot() { return snapshot(options_.k); }
  std::vector<uint32_t> snapshot(uint32_t count) {
    const auto chosen = select_experts(options_, candidates_, count);
    for (ExpertCandidate& candidate : candidates_) ++candidate.age;
    for (const uint32_t expert : chosen) {
      candidates_[expert].age = 1;
      candidates_[expert].unsaved_tokens = 0;
    }
    return chosen;
  }

 private:
  SelectionOptions options_;
  std::vector<ExpertCandidate> candidates_;
};

TEST(SelectorTest, EverySelectorVisitsAllExpertsWithinBound) {
  const uint32_t seed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const uint32_t experts = 1 + random() % 40;
    const uint32_t k = 1 + random() % experts;
    const uint32_t needed = (experts + k - 1) / k;
    SelectionOptions options{kSelectors[static_cast<size_t>(round) % std::size(kSelectors)], k,
                             needed + static_cast<uint32_t>(random() % 6)};
    ASSERT_TRUE(check_selection(options, experts).ok());
    Layer layer(options, experts);
    std::vector<double> share(experts);
    for (double& s : share) s = std::exp(static_cast<double>(random() % 8));
    for (uint32_t at = 0; at < 5 * needed + 20; ++at) {
      for (uint32_t e = 0; e < experts; ++e) {
        ExpertCandidate& candidate = layer.candidates()[e];
        candidate.unsaved_tokens +=
            static_cast<int64_t>(share[e] * static_cast<double>(random() % 100));
        candidate.loss_probability = 1.0 / static_cast<double>(1 + e % 5);
      }
      const auto chosen = layer.snapshot();
      ASSERT_EQ(std::set<uint32_t>(chosen.begin(), chosen.end()).size(), k);
      for (const ExpertCandidate& candidate : layer.candidates()) {
        ASSERT_LE(candidate.age, options.staleness_max)
            << "round " << round << " snapshot " << at << " " << selector_name(options.selector);
      }
    }
  }
}

// For any initial ages: from the first snapshot on, every expert is within the bound.
TEST(SelectorTest, TakesMoreExpertsIfBoundDemands) {
  const uint32_t seed = 22;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  uint32_t more = 0;
  for (int round = 0; round < 300; ++round) {
    const uint32_t experts = 1 + random() % 20;
    const uint32_t k = 1 + random() % experts;
    const uint32_t needed = (experts + k - 1) / k;
    const SelectionOptions options{kSelectors[static_cast<size_t>(round) % std::size(kSelectors)],
                                   k, needed + static_cast<uint32_t>(random() % 6)};
    Layer layer(options, experts);
    for (ExpertCandidate& candidate : layer.candidates()) candidate.age = 1 + random() % 30;
    for (uint32_t at = 0; at < 3 * needed; ++at) {
      for (ExpertCandidate& candidate : layer.candidates()) {
        candidate.unsaved_tokens += static_cast<int64_t>(random() % 1000);
      }
      const uint32_t count = k_within_bound(options, layer.candidates());
      ASSERT_LE(count, experts);
      if (at > 0) {
        ASSERT_EQ(count, k) << "one that takes more is enough";
      }
      more += count > k ? 1 : 0;
      layer.snapshot(count);
      for (const ExpertCandidate& candidate : layer.candidates()) {
        ASSERT_LE(candidate.age, options.staleness_max);
      }
    }
  }
  EXPECT_GT(more, 0u);
}

// Twelve experts with few tokens are due within two snapshots of one expert: eleven are saved now,
// one in the next snapshot.
TEST(SelectorTest, CatchUpTakesExtraExpertsOnce) {
  const SelectionOptions options{Selector::kLoadAware, 1, 40};
  Layer layer(options, 32);
  for (uint32_t e = 0; e < 32; ++e) {
    layer.candidates()[e].age = e < 12 ? 39 : 1 + e;
    layer.candidates()[e].unsaved_tokens = e < 12 ? 10 : 1000;
  }
  EXPECT_EQ(k_within_bound(options, layer.candidates()), 11u);
  for (const uint32_t expert : layer.snapshot(11)) EXPECT_LT(expert, 12u);
  EXPECT_EQ(k_within_bound(options, layer.candidates()), 1u);
  for (const uint32_t expert : layer.snapshot()) EXPECT_LT(expert, 12u);
}

// The most urgent experts are selected, unless the bound demands others.
TEST(SelectorTest, TakesTheMostUrgentThatTheBoundAllows) {
  std::vector<ExpertCandidate> four(4);
  for (uint32_t e = 0; e < 4; ++e) four[e] = {.unsaved_tokens = 10 + e, .age = 2, .turn = e};
  EXPECT_THAT(select_experts({Selector::kLoadAware, 2, 9}, four), ElementsAre(2, 3));
  four[0].age = 9;  // due now
  EXPECT_THAT(select_experts({Selector::kLoadAware, 2, 9}, four), ElementsAre(0, 3));
  four[0].age = four[1].age = four[2].age = 8;  // three due within two snapshots of two
  EXPECT_THAT(select_experts({Selector::kLoadAware, 2, 9}, four), ElementsAre(2, 3));
  four[3].age = 8;  // and now all four
  four[3].unsaved_tokens = 0;
  EXPECT_THAT(select_experts({Selector::kLoadAware, 2, 9}, four), ElementsAre(1, 2));
}

TEST(SelectorTest, TakesTheOverdueFirst) {
  std::vector<ExpertCandidate> four(4);
  for (uint32_t e = 0; e < 4; ++e) four[e] = {.unsaved_tokens = 100, .age = 1, .turn = e};
  four[1].age = 12;
  four[2].age = 13;
  four[3].age = 11;
  four[2].unsaved_tokens = 0;
  EXPECT_THAT(select_experts({Selector::kRiskAware, 2, 4}, four), ElementsAre(1, 2));
}

TEST(SelectorTest, RiskAwareSparesReplicatedExperts) {
  std::vector<ExpertCandidate> two(2);
  two[0] = {.unsaved_tokens = 1000, .age = 3, .loss_probability = loss_probability(16, 4, 4)};
  two[1] = {.unsaved_tokens = 100, .age = 3, .loss_probability = loss_probability(16, 1, 4)};
  EXPECT_THAT(select_experts({Selector::kLoadAware, 1, 9}, two), ElementsAre(0));
  EXPECT_THAT(select_experts({Selector::kRiskAware, 1, 9}, two), ElementsAre(1));
}

// An expert four times as old counts twice as much, with and without differences in risk.
TEST(SelectorTest, RiskAwareWeighsTheRootOfAge) {
  const SelectionOptions options{Selector::kRiskAware, 1, 9};
  std::vector<ExpertCandidate> two(2);
  two[0] = {.unsaved_tokens = 100, .age = 1};
  two[1] = {.unsaved_tokens = 51, .age = 4};
  EXPECT_THAT(select_experts(options, two), ElementsAre(1));
  two[1].unsaved_tokens = 49;
  EXPECT_THAT(select_experts(options, two), ElementsAre(0));
  two[0].loss_probability = 0.5;
  EXPECT_THAT(select_experts(options, two), ElementsAre(1));
  two[1].unsaved_tokens = 24;
  EXPECT_THAT(select_experts(options, two), ElementsAre(0));
}

// At equal risks and ages, both select exactly the same experts, for any loads.
TEST(SelectorTest, RiskAwareMatchesLoadAwareAtEqualRisk) {
  const uint32_t seed = 4;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const uint32_t experts = 2 + random() % 30;
    const uint32_t k = 1 + random() % experts;
    const uint32_t bound = default_staleness_max(experts, k);
    const double risk = loss_probability(16, 1 + random() % 4, 4);
    const uint64_t age = 1 + random() % bound;
    std::vector<ExpertCandidate> candidates(experts);
    for (uint32_t expert = 0; expert < experts; ++expert) {
      candidates[expert] = {.unsaved_tokens = static_cast<int64_t>(random() % 1000),
                            .age = age,
                            .loss_probability = risk,
                            .turn = expert};
    }
    const SelectionOptions ours{Selector::kRiskAware, k, bound};
    const SelectionOptions theirs{Selector::kLoadAware, k, bound};
    const uint32_t count = k_within_bound(ours, candidates);
    ASSERT_EQ(select_experts(ours, candidates, count), select_experts(theirs, candidates, count));
  }
}

// A restart loses the tokens routed between a version and the view. With equal load, K of N experts
// and a snapshot every `interval` steps, that is (N/K - 1)/2 intervals. The bound is too wide to
// matter.
TEST(SelectorTest, SequentialMatchesTheClosedFormOnUniformLoad) {
  for (const auto& [experts, k] : {std::pair{32u, 4u}, {32u, 1u}, {12u, 3u}, {8u, 8u}}) {
    constexpr uint64_t kInterval = 3;
    constexpr uint64_t kFaults = 5;
    constexpr int64_t kTokens = 7;  // of each expert in each step
    const ExpertGrid grid{1, experts};
    Layer layer({Selector::kSequential, k, 9 * experts}, experts);
    PltMeter meter(grid);
    std::vector<int64_t> routed(experts);
    std::vector<int64_t> saved(experts);  // that the versions hold
    const auto train = [&](uint64_t intervals) {
      for (uint64_t at = 0; at < intervals; ++at) {
        for (uint32_t e = 0; e < experts; ++e) {
          routed[e] += kTokens * static_cast<int64_t>(kInterval);
          layer.candidates()[e].unsaved_tokens = meter.held(e, routed) - saved[e];
        }
        for (const uint32_t e : layer.snapshot()) saved[e] = meter.held(e, routed);
      }
    };
    train(2 * experts);
    for (uint64_t fault = 0; fault < kFaults; ++fault) {
      ASSERT_TRUE(meter.restarted(routed, saved).ok());
      train(experts);  // so that every expert has been saved again
    }
    const auto steps = static_cast<double>((2 + kFaults) * experts * kInterval);
    const double rounds = experts / static_cast<double>(k);
    EXPECT_NEAR(meter.plt(routed), kFaults * (rounds - 1) * kInterval / (2 * steps), 1e-12);
  }
}

// The load does not affect the sequential selector; it affects all others.
TEST(SelectorTest, OnlySequentialIgnoresLoad) {
  for (const Selector selector : kSelectors) {
    Layer layer({selector, 2, 99}, 8);
    uint64_t oldest = 0;
    for (int at = 0; at < 40; ++at) {
      for (uint32_t e = 0; e < 8; ++e) layer.candidates()[e].unsaved_tokens += e < 2 ? 1000 : 10;
      layer.snapshot();
      for (const ExpertCandidate& candidate : layer.candidates()) {
        oldest = std::max(oldest, candidate.age);
      }
    }
    EXPECT_EQ(oldest <= 4, selector == Selector::kSequential) << selector_name(selector);
  }
}

TEST(TurnsTest, SpreadsTheExpertsOfOneSnapshotOverRanks) {
  // Four ranks of two experts: neighbours in the round robin are on different ranks.
  const LayerSlots blocks = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  EXPECT_THAT(turns(blocks, 8, 0, 1), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  std::vector<uint32_t> of_rank(4);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const auto turn = turns(blocks, 8, layer, 1);
    const auto first = std::find(turn.begin(), turn.end(), 0u) - turn.begin();
    ++of_rank[static_cast<size_t>(first) / 2];
  }
  EXPECT_THAT(of_rank, ElementsAre(1, 1, 1, 1));
}

TEST(TurnsTest, AreAPermutationWhateverThePlacement) {
  const uint32_t seed = 31;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> loads(1 + random() % 12);
    for (uint64_t& load : loads) load = random() % 100;
    const auto experts = static_cast<uint32_t>(loads.size());
    const auto slots = lazarus_layer(loads, {6, 4, 2});
    ASSERT_TRUE(slots.ok());
    auto turn = turns(*slots, experts, random() % 9, 1 + random() % experts);
    std::sort(turn.begin(), turn.end());
    for (uint32_t place = 0; place < experts; ++place) EXPECT_EQ(turn[place], place);
  }
}

TEST(SelectorTest, RefusesInvalidOptions) {
  EXPECT_THAT(check_selection({Selector::kSequential, 0, 8}, 8).error().message,
              HasSubstr("0 experts of each layer per checkpoint: there are 8"));
  EXPECT_THAT(check_selection({Selector::kSequential, 9, 8}, 8).error().message,
              HasSubstr("9 experts of each layer"));
  EXPECT_THAT(check_selection({Selector::kRiskAware, 3, 2}, 8).error().message,
              HasSubstr("8 experts, 3 at a time, take 3"));
  EXPECT_TRUE(check_selection({Selector::kRiskAware, 3, 3}, 8).ok());
  EXPECT_TRUE(check_selection({Selector::kRiskAware, 3, default_staleness_max(8, 3)}, 8).ok());
  EXPECT_THAT(parse_selector("random").error().message, HasSubstr("'random'"));
  EXPECT_EQ(parse_selector("age-aware").error().message, kAgeAwareRemoved);
  for (const Selector selector : kSelectors)
    EXPECT_EQ(*parse_selector(selector_name(selector)), selector);
}

}  // namespace
}  // namespace moetrain
