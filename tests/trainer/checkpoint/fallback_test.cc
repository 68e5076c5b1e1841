// Ranks restore different versions of a unit if one version becomes unreadable in between. All
// ranks then take the older version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tests/support/damaged_files.h"
#include "tests/trainer/checkpoint/daemon_run.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

class FallbackTest : public DaemonRunTest {
 protected:
  // Two commits of everything, and a ckptd that has nothing in memory.
  void SetUp() override {
    DaemonRunTest::SetUp();
    for (const uint64_t at : {1u, 2u}) {
      step();
      save(/*full=*/true);
      images_[at] = image();
    }
    daemon_.crash_and_restart();
    connect();
  }
  uint32_t unit(const std::string& name) const {
    return static_cast<uint32_t>(std::ranges::find(units_, name, &StateUnit::name) -
                                 units_.begin());
  }
  void damage(const std::string& name) {
    ASSERT_EQ(ckpt::test::flip_a_bit(daemon_.data() + "/segments", images_[2].at(unit(name))), 1u);
  }
  RestoreSummary restore(uint64_t step, const std::vector<uint32_t>& ids) {
    auto summary = restore_units(*session_, "tiny", {lineage_, step}, units_, ids, *memory_);
    EXPECT_TRUE(summary.ok()) << summary.error().message;
    return summary.ok() ? std::move(summary).value() : RestoreSummary();
  }
  VersionSpread compare(const RestoreSummary& a, const RestoreSummary& b) {
    auto comms = make_local_comms(2);
    std::optional<Result<VersionSpread>> other;
    std::jthread second(
        [&] { other = VersionSpread::compare(*comms[1], units_.size(), b.versions); });
    auto spread = VersionSpread::compare(*comms[0], units_.size(), a.versions);
    second.join();
    EXPECT_TRUE(spread.ok() && other->ok());
    return std::move(spread).value();
  }

  const std::vector<uint32_t> all_ = units_of_rank(units_, Ownership::replicated(placement_), 0);
  std::map<uint64_t, Image> images_;  // by step
};

TEST_F(FallbackTest, RanksAgreeOnOlderExpertVersion) {
  const std::string name = "layers.1.experts.2.weights";
  const RestoreSummary before = restore(2, all_);
  EXPECT_TRUE(before.stale_units.empty());
  damage(name);
  const RestoreSummary after = restore(2, all_);
  EXPECT_FALSE(after.torn) << "experts may differ in age";
  EXPECT_THAT(after.stale_units, ElementsAre(unit(name)));
  const auto again = compare(before, after).newer_here(before.versions);
  ASSERT_THAT(again, ElementsAre(Pair(1u, ElementsAre(unit(name)))));
  stamps_.clear();
  const RestoreSummary same = restore(1, again.at(1));
  EXPECT_THAT(same.versions, ElementsAre(RestoredUnit{unit(name), 1}));
  EXPECT_TRUE(image().at(unit(name)) == images_[1].at(unit(name)));
  EXPECT_EQ(stamps_.at(ExpertPart::kWeights, kGrid.at(1, 2)).step, 1);
}

TEST_F(FallbackTest, OlderDenseUnitTearsState) {
  const RestoreSummary before = restore(2, all_);
  EXPECT_FALSE(before.torn);
  damage("layers.0.attention");
  const RestoreSummary after = restore(2, all_);
  EXPECT_TRUE(after.torn);
  EXPECT_THAT(
      after.notes,
      ElementsAre(StartsWith("unit layers.0.attention is from step 1 instead of 2: segment")));
  EXPECT_EQ(compare(before, after).oldest(unit("layers.0.attention")), 1u);
  EXPECT_FALSE(restore(1, all_).torn) << "a step earlier all is there";
}

TEST_F(FallbackTest, OlderTrainerUnitTearsState) {
  damage("trainer");
  const RestoreSummary summary = restore(2, all_);
  EXPECT_TRUE(summary.torn);
  EXPECT_THAT(summary.notes, ElementsAre(HasSubstr("trainer is from step 1")));
}

}  // namespace
}  // namespace moetrain
