// laer_counts: how many replicas each expert of a layer gets, in the ways that `laer` compares.
#pragma once

#include <cstdint>
#include <vector>

namespace moetrain {

// [expert]: replicas, at least one each; together `slots`, which are no fewer than experts. Ties go
// to the lower number.

// Replica counts as even as the slots allow.
std::vector<uint32_t> even_counts(uint32_t slots, uint32_t experts);

// Begins with one replica of each; the next always to the expert with most load per replica that
// has fewer than `replicas_max`, which leaves no slot empty. The counts that this passes through
// early are computed, not walked: O(experts^2 log experts), however many slots there are.
std::vector<uint32_t> counts_by_load(const std::vector<uint64_t>& loads, uint32_t slots,
                                     uint32_t replicas_max);

// The same, but an expert with a replica for each node gets further ones for all nodes at once, as
// lite routing keeps the tokens of each node on it. Slots that are left over go one by one.
// first: replicas of each to begin with, 1 or `nodes`.
std::vector<uint32_t> counts_by_rounds(const std::vector<uint64_t>& loads, uint32_t slots,
                                       uint32_t nodes, uint32_t first, uint32_t replicas_max);

}  // namespace moetrain
