#include "trainer/partial/plt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PltTest, CountsTokensThatVersionsLack) {
  const ExpertGrid grid{1, 2};
  PltMeter meter(grid);
  const std::vector<int64_t> routed = {60, 40};
  EXPECT_EQ(*meter.restarted(routed, std::vector<int64_t>{60, 10}), 30);
  EXPECT_THAT(meter.lost().restart, ElementsAre(0, 30));
  EXPECT_DOUBLE_EQ(meter.plt(routed), 0.3);
  // From the same version again, ten tokens later: only these ten tokens are lost anew.
  const std::vector<int64_t> later = {60, 50};
  EXPECT_EQ(*meter.restarted(later, std::vector<int64_t>{60, 10}), 10);
  EXPECT_EQ(meter.held(1, later), 10);
  EXPECT_EQ(*meter.rolled_back(0, later, 55), 5);
  EXPECT_DOUBLE_EQ(meter.plt_rollback(later), 5.0 / 110);
  EXPECT_DOUBLE_EQ(meter.plt_restart(later), 40.0 / 110);
}

TEST(PltTest, LayersHaveEqualWeight) {
  const ExpertGrid grid{2, 2};
  PltMeter meter(grid);
  const std::vector<int64_t> routed = {30, 10, 20, 20};
  ASSERT_TRUE(meter.restarted(routed, std::vector<int64_t>{20, 10, 20, 0}).ok());
  EXPECT_DOUBLE_EQ(meter.plt(routed), (10.0 / 40 + 20.0 / 40) / 2);
  EXPECT_DOUBLE_EQ(PltMeter(grid).plt(std::vector<int64_t>(4)), 0) << "before the first token";
}

// A run as sets: the state of every expert is the set of steps whose updates it holds.
class NaiveRun {
 public:
  NaiveRun(const ExpertGrid& grid, std::mt19937& random) : grid_(grid), random_(random) {
    state_.held.resize(grid.size());
    state_.restart.assign(grid.size(), 0);
    state_.rollback = state_.restart;
  }

  void step() {
    std::vector<int64_t>& tokens = tokens_.emplace_back(grid_.size());
    for (int64_t& count : tokens) count = random_() % 50;
    const auto id = tokens_.size() - 1;
    state_.steps.insert(id);
    for (auto& held : state_.held) held.insert(id);
  }
  void save(const std::vector<bool>& experts) {
    Snapshot& snapshot = snapshots_.emplace_back(Snapshot{state_, {}});
    for (size_t i = 0; i < grid_.size(); ++i) {
      if (experts[i]) snapshot.versions[i] = state_.held[i];
    }
  }
  // Restarts from the view of snapshot `at`; newer snapshots belong to another lineage.
  void restart(size_t at) {
    snapshots_.resize(at + 1);
    const State was = snapshots_[at].state;
    state_ = was;
    for (size_t i = 0; i < grid_.size(); ++i) {
      state_.held[i] = newest(i);
      state_.restart[i] += tokens_of(was.held[i], i) - tokens_of(state_.held[i], i);
    }
  }
  void roll_back(size_t expert) {
    const std::set<size_t> was = state_.held[expert];
    state_.held[expert] = newest(expert);
    state_.rollback[expert] += tokens_of(was, expert) - tokens_of(state_.held[expert], expert);
  }

  size_t snapshots() const { return snapshots_.size(); }
  std::vector<int64_t> routed() const {
    std::vector<int64_t> sums;
    for (size_t i = 0; i < grid_.size(); ++i) sums.push_back(tokens_of(state_.steps, i));
    return sums;
  }
  int64_t held(size_t expert) const { return tokens_of(state_.held[expert], expert); }
  PltMeter::Lost lost() const { return {state_.restart, state_.rollback}; }

 private:
  struct State {
    std::set<size_t> steps;              // of the lineage, so far
    std::vector<std::set<size_t>> held;  // by expert
    std::vector<int64_t> restart, rollback;
  };
  struct Snapshot {
    State state;
    std::map<size_t, std::set<size_t>> versions;
  };

  int64_t tokens_of(const std::set<size_t>& steps, size_t expert) const {
    int64_t sum = 0;
    for (const size_t step : steps) sum += tokens_[step][expert];
    return sum;
  }
  std::set<size_t> newest(size_t expert) const {
    for (size_t at = snapshots_.size(); at-- > 0;) {
      const auto version = snapshots_[at].versions.find(expert);
      if (version != snapshots_[at].versions.end()) return version->second;
    }
    ADD_FAILURE() << "never saved";
    return {};
  }

  const ExpertGrid grid_;
  std::mt19937& random_;
  State state_;
  std::vector<std::vector<int64_t>> tokens_;  // by step
  std::vector<Snapshot> snapshots_;
};

// State of a trainer: a meter, and for every version the tokens it holds.
class MeteredRun {
 public:
  explicit MeteredRun(const ExpertGrid& grid) : grid_(grid), meter_(grid) {}

  void save(const std::vector<bool>& experts, const std::vector<int64_t>& routed) {
    Snapshot& snapshot = snapshots_.emplace_back(Snapshot{meter_, routed, {}});
    for (size_t i = 0; i < grid_.size(); ++i) {
      if (experts[i]) snapshot.held[i] = meter_.held(i, routed);
    }
  }
  void restart(size_t at) {
    snapshots_.erase(snapshots_.begin() + static_cast<ptrdiff_t>(at) + 1, snapshots_.end());
    const Snapshot& view = snapshots_[at];
    auto resumed = PltMeter::resume(grid_, view.meter.lost(), view.routed);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    meter_ = *resumed;
    std::vector<int64_t> held;
    for (size_t i = 0; i < grid_.size(); ++i) held.push_back(newest(i));
    const auto lost = meter_.restarted(view.routed, held);
    ASSERT_TRUE(lost.ok()) << lost.error().message;
  }
  void roll_back(size_t expert, const std::vector<int64_t>& routed) {
    const auto lost = meter_.rolled_back(expert, routed, newest(expert));
    ASSERT_TRUE(lost.ok()) << lost.error().message;
  }
  const PltMeter& meter() const { return meter_; }

 private:
  struct Snapshot {
    PltMeter meter;
    std::vector<int64_t> routed;
    std::map<size_t, int64_t> held;
  };
  int64_t newest(size_t expert) const {
    size_t at = snapshots_.size() - 1;
    while (!snapshots_[at].held.contains(expert)) --at;
    return snapshots_[at].held.at(expert);
  }

  const ExpertGrid grid_;
  PltMeter meter_;
  std::vector<Snapshot> snapshots_;
};

TEST(PltTest, MatchesMissingUpdatesAfterAnyHistory) {
  const uint32_t seed = 2408;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    const ExpertGrid grid{1 + static_cast<uint32_t>(random() % 2),
                          1 + static_cast<uint32_t>(random() % 5)};
    NaiveRun naive(grid, random);
    MeteredRun metered(grid);
    std::vector<bool> chosen(grid.size(), true);
    naive.save(chosen);
    metered.save(chosen, naive.routed());
    for (int event = 0; event < 60; ++event) {
      const uint32_t kind = random() % 10;
      if (kind < 5) naive.step();
      if (kind >= 5 && kind < 8) {
        for (size_t i = 0; i < grid.size(); ++i) chosen[i] = random() % 3 == 0;
        naive.save(chosen);
        metered.save(chosen, naive.routed());
      }
      if (kind == 8) {
        const size_t expert = random() % grid.size();
        metered.roll_back(expert, naive.routed());
        naive.roll_back(expert);
      }
      if (kind == 9) {
        const size_t back = random() % std::min<size_t>(naive.snapshots(), 3);
        const size_t at = naive.snapshots() - 1 - back;
        naive.restart(at);
        metered.restart(at);
      }
      ASSERT_EQ(metered.meter().lost(), naive.lost()) << "round " << round << " event " << event;
      const auto routed = naive.routed();
      for (size_t i = 0; i < grid.size(); ++i) {
        ASSERT_EQ(metered.meter().held(i, routed), naive.held(i));
      }
    }
  }
}

TEST(PltTest, RefusesVersionsWithTooManyTokens) {
  const ExpertGrid grid{2, 2};
  PltMeter meter(grid);
  const std::vector<int64_t> routed = {10, 10, 10, 10};
  const auto refused = meter.restarted(routed, std::vector<int64_t>{5, 5, 5, 11});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("layers.1.experts.1: its version holds"));
  EXPECT_EQ(meter, PltMeter(grid));
  EXPECT_FALSE(meter.restarted(routed, std::vector<int64_t>{5, 5, -1, 0}).ok());
  EXPECT_FALSE(meter.rolled_back(3, routed, 11).ok());
  EXPECT_EQ(meter, PltMeter(grid));
}

TEST(PltTest, RefusesLostTokensThatWereNeverRouted) {
  const ExpertGrid grid{1, 2};
  const std::vector<int64_t> routed = {10, 10};
  const auto message = [&](std::vector<int64_t> restart, std::vector<int64_t> rollback) {
    return PltMeter::resume(grid, {std::move(restart), std::move(rollback)}, routed)
        .error()
        .message;
  };
  EXPECT_TRUE(PltMeter::resume(grid, {{10, 5}, {0, 5}}, routed).ok());
  EXPECT_THAT(message({0, 6}, {0, 5}), HasSubstr("layers.0.experts.1 lost 6 and 5 of its 10"));
  EXPECT_THAT(message({0, INT64_MAX}, {0, INT64_MAX}), HasSubstr("layers.0.experts.1"));
  EXPECT_THAT(message({0, -1}, {0, 0}), HasSubstr("(restart) of layers.0.experts.1: -1"));
  EXPECT_THAT(message({0, 0}, {0}), HasSubstr("1 counts for 2 experts"));
}

TEST(RoutingTest, CountsMustAddUp) {
  const ExpertGrid grid{2, 2};
  EXPECT_TRUE(check_routing(grid, std::vector<int64_t>{3, 5, 8, 0}, 8).ok());
  const auto message = [&](std::vector<int64_t> routed) {
    return check_routing(grid, routed, 8).error().message;
  };
  EXPECT_THAT(message({3, 5, 7, 0}), HasSubstr("layer 1 sum to 7, not to the 8"));
  EXPECT_THAT(message({3, 6, 8, 0}), HasSubstr("layer 0 expert 1 has 6 of 8 assignments"));
  EXPECT_THAT(message({3, 5, -1, 9}), HasSubstr("layer 1 expert 0 has -1"));
  EXPECT_THAT(message({INT64_MAX, INT64_MAX, 0, 0}), HasSubstr("layer 0 expert 0"));
  EXPECT_THAT(message({3, 5, 8}), HasSubstr("3 counts for 2 layers of 2"));
}

}  // namespace
}  // namespace moetrain
