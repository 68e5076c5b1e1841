// Recovery: which losses of ranks a placement survives, exactly.
//
// A set of experts survives if each of them keeps a live holder. Holders are bit masks over ranks,
// or over failure domains where ranks die together (`domain_of_rank`). With up to kExactRanksMax of
// them sets of dead ones are counted (fatal_sets.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/fatal_sets.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

// One mask for each expert; `domain_of_rank` may be empty: every rank fails by itself. Domains are
// below 32, there are at most 32 ranks without them.
std::vector<RankMask> holder_masks(const LayerSlots& slots, uint32_t experts,
                                   std::span<const uint32_t> domain_of_rank = {});

// [k], k = 0 .. ranks: how many of the C(ranks, k) sets of k dead ranks leave a live holder to
// every mask. Give the masks of all layers to get the joint answer. `ranks` is at most
// kExactRanksMax, every mask is below 2^ranks; an expert without a holder (mask 0) never survives.
std::vector<uint64_t> surviving_sets(std::span<const RankMask> masks, uint32_t ranks);

// n over k, exact; n is at most 62.
uint64_t binomial(uint32_t n, uint32_t k);

// The probability that all of `held` domains are among `failures` of `domains` that fail, each set
// of them equally likely: C(domains - held, failures - held) / C(domains, failures).
double loss_probability(uint32_t domains, uint32_t held, uint32_t failures);

// The probability that the next failure takes all `held` holders in a group of so many failure
// domains: the risk that the selectors of the trainer, the simulator and the bench weigh with. A
// failure takes k domains, any k alike, with a probability that halves for each further one, up
// to all: an assumption, used only to choose experts. 1 without a holder.
double failure_takes_all(uint32_t domains, uint32_t held);

}  // namespace moetrain
