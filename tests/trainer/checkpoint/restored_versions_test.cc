#include "trainer/checkpoint/restored_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Given = std::vector<RestoredUnit>;

// Version spreads, by rank.
std::vector<VersionSpread> compare_all(size_t units, const std::vector<Given>& given) {
  auto comms = make_local_comms(static_cast<uint32_t>(given.size()));
  std::vector<std::optional<VersionSpread>> spreads(given.size());
  {
    std::vector<std::jthread> threads;
    threads.reserve(given.size());
    for (size_t rank = 0; rank < given.size(); ++rank) {
      threads.emplace_back([&, rank] {
        auto spread = VersionSpread::compare(*comms[rank], units, given[rank]);
        EXPECT_TRUE(spread.ok());
        if (spread.ok()) spreads[rank].emplace(std::move(spread).value());
      });
    }
  }
  std::vector<VersionSpread> all;
  all.reserve(spreads.size());
  for (auto& spread : spreads) all.push_back(std::move(spread).value());
  return all;
}

TEST(RestoredVersionsTest, EqualVersionsNeedNoFurtherRestore) {
  const std::vector<Given> given = {{{0, 8}, {1, 4}}, {{0, 8}, {3, 0}}};
  for (const VersionSpread& spread : compare_all(4, given)) {
    EXPECT_TRUE(spread.same());
    EXPECT_EQ(spread.oldest(0), 8u);
    EXPECT_EQ(spread.oldest(1), 4u);
    EXPECT_FALSE(spread.restored(2));
    EXPECT_TRUE(spread.restored(3)) << "step 0 is one, too";
    EXPECT_THAT(spread.newer_here(given[0]), IsEmpty());
  }
}

TEST(RestoredVersionsTest, RankWithNewerVersionRollsBackToOldest) {
  const std::vector<Given> given = {
      {{0, 8}, {1, 8}, {2, 4}}, {{0, 8}, {1, 2}, {2, 0}}, {{1, 8}, {2, 8}}};
  const auto spreads = compare_all(3, given);
  EXPECT_FALSE(spreads[0].same());
  EXPECT_THAT(spreads[0].newer_here(given[0]),
              ElementsAre(Pair(0u, ElementsAre(2u)), Pair(2u, ElementsAre(1u))));
  EXPECT_THAT(spreads[1].newer_here(given[1]), IsEmpty());
  EXPECT_THAT(spreads[2].newer_here(given[2]),
              ElementsAre(Pair(0u, ElementsAre(2u)), Pair(2u, ElementsAre(1u))));
}

}  // namespace
}  // namespace moetrain
