#include "trainer/partial/save_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace moetrain {
namespace {

using Saved = SaveLedger::Saved;

TEST(SaveLedgerTest, KnowsTheNewestSave) {
  SaveLedger ledger{std::vector<Saved>(3)};
  EXPECT_FALSE(ledger.all_saved());
  ledger.take(1, std::vector<uint32_t>{0, 1, 2}, std::vector<int64_t>{10, 20, 30});
  EXPECT_TRUE(ledger.all_saved());
  ledger.take(2, std::vector<uint32_t>{1}, std::vector<int64_t>{11, 21, 31});
  EXPECT_EQ(ledger[0], (Saved{1, 10}));
  EXPECT_EQ(ledger[1], (Saved{2, 21}));
}

TEST(SaveLedgerTest, AFailedFirstSnapshotSavedNothing) {
  SaveLedger ledger{std::vector<Saved>(2)};
  ledger.take(1, std::vector<uint32_t>{0, 1}, std::vector<int64_t>{10, 20});
  ledger.fail(1);
  EXPECT_FALSE(ledger.all_saved());
}

TEST(SaveLedgerTest, ReplacedSaveMayBeUnknown) {
  SaveLedger ledger{{{4, 40}, {3, 30}, {4, 41}}};
  ledger.take(5, std::vector<uint32_t>{2}, std::vector<int64_t>{50, 51, 52});
  EXPECT_FALSE(ledger.fail(4));
  EXPECT_TRUE(ledger.all_saved());
  ledger.forget(4);
  EXPECT_EQ(ledger[0], Saved());
  EXPECT_EQ(ledger[1], (Saved{3, 30}));
  EXPECT_EQ(ledger[2], (Saved{5, 52}));
  EXPECT_TRUE(ledger.fail(5));
  EXPECT_EQ(ledger[2], Saved()) << "not snapshot 4 again";
}

// Compares with a model that keeps every snapshot and searches all that did not fail. Failures are
// reported late and in any order.
TEST(SaveLedgerTest, EqualsANaiveModelWhateverFails) {
  const uint32_t seed = 17;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const uint32_t experts = 1 + random() % 8;
    SaveLedger ledger{std::vector<Saved>(experts)};
    std::vector<std::set<uint32_t>> taken = {{}};  // by snapshot; 0 is none
    std::set<uint64_t> failed;
    for (uint64_t snapshot = 1; snapshot < 60; ++snapshot) {
      std::vector<uint32_t> chosen;
      for (uint32_t e = 0; e < experts; ++e) {
        if (random() % 3 == 0) chosen.push_back(e);
      }
      ledger.take(snapshot, chosen, std::vector<int64_t>(experts, static_cast<int64_t>(snapshot)));
      taken.emplace_back(chosen.begin(), chosen.end());
      for (uint64_t late = snapshot - std::min<uint64_t>(snapshot, 5); late <= snapshot; ++late) {
        if (late == 0 || random() % 6 != 0) continue;
        failed.insert(late);
        ledger.fail(late);
      }
      for (uint32_t e = 0; e < experts; ++e) {
        uint64_t newest = snapshot;
        while (newest > 0 && (failed.contains(newest) || !taken[newest].contains(e))) --newest;
        EXPECT_EQ(ledger[e], (Saved{newest, static_cast<int64_t>(newest)})) << "round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace moetrain
