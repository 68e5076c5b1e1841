// Families of domain sets for `frontier`, and what each survives. See layer_search.h.
#pragma once

#include <optional>
#include <vector>

#include "trainer/placement/layer_search.h"

namespace moetrain {

struct RatedFamily {
  Family family;
  // [k - 1]: lower bound of the joint probability of recovery from k failures, for any layers that
  // stay within the family. For k up to domains - 1, at most 64 or the largest number that the
  // request names.
  std::vector<double> recovery;
};

// Candidates, the most survivable first; by the recovery at `failures` (ascending, each below the
// domains), then by the mean over all numbers that are rated. What they are made of:
//   - P blocks of s domains, the rest in blocks of s + 1: fewer sets that can be fatal
//   - P blocks of s domains, windows of s + 1 around the rest: more freedom to balance
//   - no member, only free_size distinct domains: nothing below that many failures is fatal
// Up to kExactRanksMax domains all P are tried; beyond, blocks of equal size, and where slots are
// few some P as well.
std::vector<RatedFamily> candidate_families(const PlacementRequest& request,
                                            const std::vector<uint32_t>& failures);

// The family that these layers are in: their smallest holder sets. Rated for up to `failed_max`
// failures only.
RatedFamily family_of(const std::vector<LayerSlots>& layers, const PlacementRequest& request,
                      uint32_t failed_max);
// The same; nullopt if its recovery could only be estimated, which takes long.
std::optional<RatedFamily> exact_family_of(const std::vector<LayerSlots>& layers,
                                           const PlacementRequest& request, uint32_t failed_max);

}  // namespace moetrain
