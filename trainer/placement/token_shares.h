// Token shares: how many of each rank's tokens for an expert go to which of its slots.
//
// The dispatcher of Lazarus (arXiv 2407.04656), in integers. An expert's t tokens are shared evenly
// by its r slots: every slot gets floor(t/r) or ceil(t/r). A rank's tokens stay on its own slots as
// far as these have room; what is left goes to the slots that have room, in proportion to it. All
// ranks compute the same shares from the same counts; nothing is exchanged but the counts.
//
// Rounding. The t mod r slots that get one token more are those from slot `turn` mod r on, cyclic:
// with the expert's number as `turn` they are not the same rank's for every expert. Sources are
// served in order of rank; source j with k tokens left, when K tokens are left of all and slot s
// has room c_s (the rooms sum to K), gives slot s floor(k * c_s / K), and its tokens that this
// leaves go, one each, to the slots with the largest remainders, ties to the lower slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moetrain {

// tokens[j]: of rank j for this expert, >= 0, their sum below 2^31. slot_ranks: the rank of every
// slot, ascending; at least one, each below tokens.size(). Returns [rank][slot]:
// result[j * slots + s].
//
//   sum over s = tokens[j]                        every token goes to one slot
//   sum over j = floor or ceil of t / slots       within one token of the even share
std::vector<int64_t> share_tokens(std::span<const int64_t> tokens,
                                  std::span<const uint32_t> slot_ranks, uint32_t turn);

// Lite routing (LAER-MoE): the slots on the source's node share the tokens of that node; the tokens
// of nodes without a slot are shared by all slots. Each such share is a share_tokens() of its own,
// so that a slot is within one token of the even share of its node's tokens, and within one of the
// even share of the tokens from nodes without a slot. With one node this is share_tokens().
//
// node_of_rank[j]: any number, the same for ranks of one node. The others as above.
std::vector<int64_t> share_tokens_by_node(std::span<const int64_t> tokens,
                                          std::span<const uint32_t> slot_ranks,
                                          std::span<const uint32_t> node_of_rank, uint32_t turn);

// The tokens that each slot gets, [slot]: the second sum.
std::vector<int64_t> slot_quotas(int64_t tokens, size_t slots, uint32_t turn);

}  // namespace moetrain
