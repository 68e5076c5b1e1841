#include "trainer/placement/recovery.h"

#include <algorithm>
#include <cmath>

#include "formats/base/assert.h"

namespace moetrain {

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
  FatalCounter counter(ranks);
  std::vector<uint64_t> surviving = counter.count(masks);
  for (uint32_t k = 0; k <= ranks; ++k) surviving[k] = counter.sets(k) - surviving[k];
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
  double probability = 1;  // loss_probability(), which one domain fewer lowers by a factor
  for (uint32_t dead = domains; dead > 0; --dead) {
    const double weight = std::ldexp(1.0, -static_cast<int>(std::min(dead, 1000u)));
    all += weight;
    if (dead < held) continue;
    taken += weight * probability;
    probability *= static_cast<double>(dead - held) / dead;
  }
  return taken / all;
}

}  // namespace moetrain
