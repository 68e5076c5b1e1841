// The search of `lazarus` stays within its limit of probes and finds the optimum.
#include "trainer/placement/lazarus_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "trainer/placement/allocation.h"
#include "trainer/placement/overlap.h"
#include "trainer/placement/recovery.h"

namespace moetrain {
namespace {

struct Shape {
  uint32_t ranks, slots_per_rank, experts, domains;
};

// Nodes of different sizes, for which only search gives an answer.
LazarusOptions options_of(const Shape& shape, std::mt19937& random) {
  LazarusOptions options{.ranks = shape.ranks, .slots_per_rank = shape.slots_per_rank};
  for (uint32_t rank = 0; rank < shape.ranks; ++rank) {
    const bool first = rank < shape.domains;
    options.domain_of_rank.push_back(first ? rank : random() % shape.domains);
  }
  return options;
}

std::vector<uint32_t> counts_of(const Shape& shape, std::mt19937& random) {
  std::vector<uint64_t> loads(shape.experts);
  for (uint32_t e = 0; e < shape.experts; ++e) loads[e] = 1 + random() % 1'000;
  return *allocate_replicas(loads, shape.ranks * shape.slots_per_rank, 1);
}

constexpr Shape kShapes[] = {{64, 6, 32, 8},   {64, 2, 32, 8},  {64, 2, 59, 20},
                             {200, 6, 64, 16}, {12, 4, 19, 11}, {7, 3, 9, 4}};

// Passes over slots and ratings of masks count as probes for every shape.
TEST(LazarusSearchTest, StaysWithinProbeLimit) {
  std::mt19937 random(2);
  for (const Shape& shape : kShapes) {
    const LazarusOptions options = options_of(shape, random);
    const std::vector<uint32_t> replicas = counts_of(shape, random);
    uint64_t before = 0;
    for (const uint64_t probes_max : {0u, 20'000u, 400'000u}) {
      LazarusSearch search(replicas, options);
      LayerSlots slots = ring_placement(replicas, options);
      search.improve(slots, probes_max);
      const uint64_t beginning = uint64_t{shape.ranks} * shape.slots_per_rank +
                                 uint64_t{shape.experts} * shape.domains +
                                 FatalCounter::probes_max(shape.domains, shape.experts);
      EXPECT_LE(search.probes(), probes_max + 2 * beginning + 100)
          << shape.ranks << " ranks in " << shape.domains << " domains, " << probes_max;
      EXPECT_GE(search.probes(), before);
      before = search.probes();
    }
  }
}

// Optimal: all experts share the domains of the expert with the fewest domains.
TEST(LazarusSearchTest, StopsAtOptimum) {
  const std::vector<uint32_t> replicas = {2, 4};
  const LazarusOptions options{.ranks = 3, .slots_per_rank = 2, .replicas_min = 2};
  LazarusSearch search(replicas, options);
  LayerSlots overlap = {{0, 1}, {0, 1}, {1, 1}};
  const LayerSlots before = overlap;
  EXPECT_TRUE(search.best_possible(search.improve(overlap, 1'000'000)));
  EXPECT_EQ(overlap, before);
  EXPECT_LT(search.probes(), 100u);
}

TEST(LazarusSearchTest, RatingMatchesRecount) {
  std::mt19937 random(4);
  for (const Shape& shape : kShapes) {
    if (shape.ranks > 64) continue;
    const LazarusOptions options = options_of(shape, random);
    const std::vector<uint32_t> replicas = counts_of(shape, random);
    LazarusSearch search(replicas, options);
    LayerSlots slots = spread_placement(replicas, options);
    const LazarusRating rating = search.improve(slots, 200'000);
    EXPECT_EQ(rating.short_of_domains, short_of_domains(slots, replicas, options));
    const auto surviving =
        surviving_sets(holder_masks(slots, shape.experts, options.domain_of_rank), shape.domains);
    ASSERT_EQ(rating.fatal.size(), surviving.size());
    for (uint32_t k = 0; k <= shape.domains; ++k) {
      EXPECT_EQ(rating.fatal[k], binomial(shape.domains, k) - surviving[k]) << k;
    }
  }
}

// Only renames domains: a single layer survives the same sets, all layers together no fewer.
TEST(LazarusAlignerTest, RenamesDomainsWithinProbeLimit) {
  std::mt19937 random(6);
  for (const Shape& shape : kShapes) {
    const LazarusOptions options = options_of(shape, random);
    LazarusAligner aligner(options);
    std::vector<RankMask> apart, together;
    const uint64_t probes_max = 100'000;
    for (int layer = 0; layer < 6; ++layer) {
      const std::vector<uint32_t> replicas = counts_of(shape, random);
      LayerSlots slots = spread_placement(replicas, options);
      const auto before = holder_masks(slots, shape.experts, options.domain_of_rank);
      aligner.add(slots, shape.experts, probes_max);
      const auto after = holder_masks(slots, shape.experts, options.domain_of_rank);
      EXPECT_EQ(surviving_sets(after, shape.domains), surviving_sets(before, shape.domains));
      apart.insert(apart.end(), before.begin(), before.end());
      together.insert(together.end(), after.begin(), after.end());
      // Probes to compare a layer with the others, and to read the contents of its ranks.
      const uint64_t beginning = uint64_t{shape.ranks} * shape.slots_per_rank +
                                 uint64_t{shape.experts} * shape.experts +
                                 5 * FatalCounter::probes_max(shape.domains, together.size());
      EXPECT_LE(aligner.probes(), static_cast<uint64_t>(layer + 1) * (probes_max + beginning));
    }
    EXPECT_GE(surviving_sets(together, shape.domains), surviving_sets(apart, shape.domains));
  }
}

}  // namespace
}  // namespace moetrain
