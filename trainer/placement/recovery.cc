#include "trainer/placement/recovery.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

constexpr uint32_t kWordDimensions = 6;  // 64 sets to a word: the lowest ranks

// [i]: the sets of a word that do not hold rank i.
constexpr std::array<uint64_t, kWordDimensions> kWithout = {0x5555555555555555, 0x3333333333333333,
                                                            0x0f0f0f0f0f0f0f0f, 0x00ff00ff00ff00ff,
                                                            0x0000ffff0000ffff, 0x00000000ffffffff};

// [k]: the sets of a word that hold k of its ranks.
constexpr auto kOfSize = [] {
  std::array<uint64_t, kWordDimensions + 1> masks{};
  for (uint32_t set = 0; set < 64; ++set) masks[std::popcount(set)] |= uint64_t{1} << set;
  return masks;
}();

constexpr std::array<uint64_t, kWordDimensions + 1> kSetsOfSize = {1, 6, 15, 20, 15, 6, 1};

// Bit s: the death of all ranks in s is fatal. Supersets of what is fatal are fatal.
std::vector<uint64_t> fatal_sets(std::span<const RankMask> masks, uint32_t ranks) {
  std::vector<uint64_t> fatal(ranks <= kWordDimensions ? 1 : size_t{1} << (ranks - 6));
  for (const RankMask mask : masks) {
    CKPT_ASSERT(mask >> ranks == 0);
    fatal[mask >> kWordDimensions] |= uint64_t{1} << (mask & 63);
  }
  for (uint32_t i = 0; i < ranks && i < kWordDimensions; ++i) {
    for (uint64_t& word : fatal) word |= (word & kWithout[i]) << (1u << i);
  }
  for (uint32_t i = kWordDimensions; i < ranks; ++i) {
    const size_t bit = size_t{1} << (i - kWordDimensions);
    for (size_t w = 0; w < fatal.size(); ++w) {
      if ((w & bit) != 0) fatal[w] |= fatal[w ^ bit];
    }
  }
  return fatal;
}

}  // namespace

std::vector<RankMask> holder_masks(const LayerSlots& slots, uint32_t experts,
                                   std::span<const uint32_t> domain_of_rank) {
  CKPT_ASSERT(domain_of_rank.empty() || domain_of_rank.size() == slots.size());
  std::vector<RankMask> masks(experts);
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    const uint32_t domain = domain_of_rank.empty() ? rank : domain_of_rank[rank];
    CKPT_ASSERT(domain < 32);
    for (const uint32_t expert : slots[rank]) masks.at(expert) |= RankMask{1} << domain;
  }
  return masks;
}

std::vector<uint64_t> surviving_sets(std::span<const RankMask> masks, uint32_t ranks) {
  CKPT_ASSERT(ranks <= kExactRanksMax);
  const std::vector<uint64_t> fatal = fatal_sets(masks, ranks);
  std::vector<uint64_t> surviving(ranks + 1);
  for (uint32_t k = 0; k <= ranks; ++k) surviving[k] = binomial(ranks, k);
  for (size_t w = 0; w < fatal.size(); ++w) {
    // Most words have no fatal set or nothing else: neither needs a look at its bits.
    if (fatal[w] == 0) continue;
    const bool all = fatal[w] == ~uint64_t{0};
    const auto high = static_cast<uint32_t>(std::popcount(w));
    for (uint32_t low = 0; low <= kWordDimensions && high + low <= ranks; ++low) {
      surviving[high + low] -=
          all ? kSetsOfSize[low] : static_cast<uint64_t>(std::popcount(fatal[w] & kOfSize[low]));
    }
  }
  return surviving;
}

uint64_t binomial(uint32_t n, uint32_t k) {
  CKPT_ASSERT(n <= 62);
  if (k > n) return 0;
  uint64_t result = 1;
  for (uint32_t i = 0; i < k; ++i) {
    // Below 2^62 times n, which may pass 2^64; the quotient is exact.
    __extension__ using Wide = unsigned __int128;
    result = static_cast<uint64_t>(Wide{result} * (n - i) / (i + 1));
  }
  return result;
}

double loss_probability(uint32_t domains, uint32_t held, uint32_t failures) {
  CKPT_ASSERT(held <= domains && failures <= domains);
  if (failures < held) return 0;
  double probability = 1;
  for (uint32_t i = 0; i < held; ++i) {
    probability *= static_cast<double>(failures - i) / static_cast<double>(domains - i);
  }
  return probability;
}

double failure_takes_all(uint32_t domains, uint32_t held) {
  double taken = 0;
  double all = 0;
  for (uint32_t dead = 1; dead <= domains; ++dead) {
    const double weight = std::ldexp(1.0, -static_cast<int>(std::min(dead, 1000u)));
    all += weight;
    if (dead >= held) taken += weight * loss_probability(domains, held, dead);
  }
  return taken / all;
}

}  // namespace moetrain
