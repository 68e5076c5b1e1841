// The choice of shares to encode never delays a commit, by the model and in a simulated pipeline.
#include "ckptd/codec/encode_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>

namespace ckptd {
namespace {

using testing::ElementsAre;
using Wish = EncodeShare::Wish;

constexpr double kMB = 1e6;

EncodeShare share(double megabytes, double ratio, double rate) {
  return {.bytes = static_cast<uint64_t>(megabytes * kMB),
          .figures = CodecFigures{ratio, rate * kMB}};
}

EncodeConditions disk_of(double rate, unsigned threads = 2) {
  return {.disk_bytes_per_second = rate * kMB, .threads = threads, .slab_bytes = 64'000'000};
}

TEST(EncodeChoice, FollowsTheDisk) {
  const std::vector<EncodeShare> shares = {share(2000, 0.7, 300)};
  EXPECT_THAT(choose_encoded(shares, disk_of(100)), ElementsAre(true));
  EXPECT_THAT(choose_encoded(shares, disk_of(2000)), ElementsAre(false));
}

TEST(EncodeChoice, TakesWhatSavesMostAndLeavesWhatDoesNotGetSmaller) {
  // Threads can encode one of the first two in time. The second saves more for its time.
  const std::vector<EncodeShare> shares = {share(2000, 0.9, 300), share(2000, 0.5, 300),
                                           share(2000, 0.97, 900)};
  EXPECT_THAT(choose_encoded(shares, disk_of(600)), ElementsAre(false, true, false));
  EXPECT_THAT(choose_encoded(shares, disk_of(50)), ElementsAre(true, true, false));
}

TEST(EncodeChoice, GuessesNothing) {
  std::vector<EncodeShare> shares = {share(2000, 0.5, 300)};
  EXPECT_THAT(choose_encoded(shares, disk_of(0)), ElementsAre(false)) << "no rate of the disk";
  shares[0].figures.reset();
  EXPECT_THAT(choose_encoded(shares, disk_of(50)), ElementsAre(false)) << "no figures";
}

TEST(EncodeChoice, DoesWhatItIsTold) {
  std::vector<EncodeShare> shares = {share(2000, 0.5, 300), share(2000, 0.5, 300)};
  shares[0].wish = Wish::kNever;
  shares[1].wish = Wish::kAlways;
  EXPECT_THAT(choose_encoded(shares, disk_of(50)), ElementsAre(false, true));
  EXPECT_THAT(choose_encoded(shares, disk_of(5000)), ElementsAre(false, true));
}

// A small snapshot is one slab: nothing is written while it is encoded.
TEST(EncodeChoice, KnowsThatOneSlabHasNoPipeline) {
  EXPECT_THAT(choose_encoded({share(64, 0.8, 300)}, disk_of(200)), ElementsAre(false));
  EXPECT_THAT(choose_encoded({share(6400, 0.8, 300)}, disk_of(200)), ElementsAre(true));
  EncodeConditions behind = disk_of(200);
  behind.queued_bytes = 100'000'000;  // the disk is busy until the slab is encoded
  EXPECT_THAT(choose_encoded({share(64, 0.8, 300)}, behind), ElementsAre(true));
}

TEST(EncodeChoice, NoiseChangesNothing) {
  std::vector<EncodeShare> shares = {share(6400, 0.7, 300)};
  EXPECT_THAT(choose_encoded(shares, disk_of(560)), ElementsAre(false));
  shares[0].encoded_so_far = true;
  EXPECT_THAT(choose_encoded(shares, disk_of(560)), ElementsAre(true));
  EXPECT_THAT(choose_encoded(shares, disk_of(640)), ElementsAre(false));
}

// ---- properties ---------------------------------------------------------------------------------

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  double between(double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random_));
  }
  bool one_in(int count) { return std::uniform_int_distribution(1, count)(random_) == 1; }
  std::vector<EncodeShare> shares(size_t most) {
    std::vector<EncodeShare> drawn(std::uniform_int_distribution<size_t>(1, most)(random_));
    for (EncodeShare& one : drawn) {
      // One statement each: the compiler chooses the order in which arguments are evaluated.
      const double megabytes = between(1, 4000);
      const double ratio = between(0.2, 1.02);
      one = share(megabytes, ratio, between(50, 1500));
      if (one_in(8)) one.figures.reset();
      if (one_in(6)) one.wish = one_in(2) ? Wish::kAlways : Wish::kNever;
      one.encoded_so_far = one.wish == Wish::kIfSooner && one_in(3);
    }
    return drawn;
  }
  EncodeConditions conditions() {
    return {.disk_bytes_per_second = between(20, 5000) * kMB,
            .queued_bytes = one_in(2) ? 0 : static_cast<uint64_t>(between(1, 2000) * kMB),
            .threads = static_cast<unsigned>(std::uniform_int_distribution(1, 4)(random_)),
            .slab_bytes = static_cast<uint64_t>(between(1, 128) * kMB)};
  }

 private:
  std::mt19937_64 random_;
};

std::vector<bool> without(const std::vector<EncodeShare>& shares) {
  std::vector<bool> always;
  always.reserve(shares.size());
  for (const EncodeShare& one : shares) always.push_back(one.wish == Wish::kAlways);
  return always;
}

TEST(EncodeChoice, NeverChoosesWhatTheModelSaysIsSlower) {
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto shares = draw.shares(8);
    const auto conditions = draw.conditions();
    const auto chosen = choose_encoded(shares, conditions);
    ASSERT_EQ(chosen, choose_encoded(shares, conditions));
    ASSERT_LE(seconds_to_durable(shares, chosen, conditions),
              seconds_to_durable(shares, without(shares), conditions));
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].wish != Wish::kIfSooner) {
        ASSERT_EQ(chosen[i], shares[i].wish == Wish::kAlways);
      } else if (chosen[i]) {
        ASSERT_TRUE(shares[i].figures.has_value());
        ASSERT_LE(shares[i].figures->ratio, 0.95);
      }
    }
  }
}

TEST(EncodeChoice, ASlowerDiskNeverSpeaksAgainstIt) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    std::vector<EncodeShare> shares = draw.shares(1);
    EncodeConditions conditions = draw.conditions();
    const auto chosen = choose_encoded(shares, conditions);
    conditions.disk_bytes_per_second *= draw.between(0.1, 1);
    if (chosen[0]) {
      ASSERT_EQ(choose_encoded(shares, conditions), chosen);
    }
  }
}

// Compared with all subsets: the greedy choice loses little.
TEST(EncodeChoice, IsNearlyTheBestThereIs) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    std::vector<EncodeShare> shares = draw.shares(6);
    for (EncodeShare& one : shares) one.encoded_so_far = one.wish == Wish::kIfSooner;
    const EncodeConditions conditions = draw.conditions();
    double best = seconds_to_durable(shares, without(shares), conditions);
    for (uint32_t subset = 0; subset < 1u << shares.size(); ++subset) {
      std::vector<bool> encoded = without(shares);
      for (size_t i = 0; i < shares.size(); ++i) {
        if (shares[i].wish == Wish::kIfSooner && (subset >> i & 1) != 0) encoded[i] = true;
      }
      best = std::min(best, seconds_to_durable(shares, encoded, conditions));
    }
    const auto chosen = choose_encoded(shares, conditions);
    ASSERT_LE(seconds_to_durable(shares, chosen, conditions), best * 1.35);
  }
}

// Simulates the pipeline. Slabs of all shares are sealed round robin at once. Threads encode the
// next slab to be encoded; the disk writes slabs in the order in which they are ready.
double simulated_seconds(const std::vector<EncodeShare>& shares, const std::vector<bool>& encoded,
                         const EncodeConditions& conditions) {
  struct Slab {
    double ready = 0;
    double bytes = 0;
  };
  std::vector<Slab> to_disk;
  std::priority_queue<double, std::vector<double>, std::greater<>> threads;
  for (unsigned i = 0; i < conditions.threads; ++i) threads.push(0);
  std::vector<double> left;
  left.reserve(shares.size());
  for (const EncodeShare& one : shares) left.push_back(static_cast<double>(one.bytes));
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (left[i] <= 0) continue;
      any = true;
      const double slab = std::min(left[i], static_cast<double>(conditions.slab_bytes));
      left[i] -= slab;
      if (!encoded[i] || !shares[i].figures) {
        to_disk.push_back({0, slab});
        continue;
      }
      const double done = threads.top() + slab / shares[i].figures->bytes_per_second;
      threads.pop();
      threads.push(done);
      to_disk.push_back({done, slab * shares[i].figures->ratio});
    }
  }
  std::stable_sort(to_disk.begin(), to_disk.end(),
                   [](const Slab& a, const Slab& b) { return a.ready < b.ready; });
  double at = static_cast<double>(conditions.queued_bytes) / conditions.disk_bytes_per_second;
  for (const Slab& slab : to_disk) {
    at = std::max(at, slab.ready) + slab.bytes / conditions.disk_bytes_per_second;
  }
  return at;
}

TEST(EncodeChoice, IsNotSlowerInASimulatedPipeline) {
  size_t chosen_somewhere = 0;
  double worst = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    std::vector<EncodeShare> shares = draw.shares(5);
    // Exclude shares that are always encoded and have no figures: the model cannot judge them.
    for (EncodeShare& one : shares) {
      if (!one.figures && one.wish == Wish::kAlways) one.wish = Wish::kNever;
    }
    const EncodeConditions conditions = draw.conditions();
    const auto chosen = choose_encoded(shares, conditions);
    if (chosen == without(shares)) continue;
    ++chosen_somewhere;
    const double ratio = simulated_seconds(shares, chosen, conditions) /
                         simulated_seconds(shares, without(shares), conditions);
    worst = std::max(worst, ratio);
    ASSERT_LE(ratio, 1.1);
  }
  EXPECT_GT(chosen_somewhere, 1000u);
  RecordProperty("worst", std::to_string(worst));
}

}  // namespace
}  // namespace ckptd
