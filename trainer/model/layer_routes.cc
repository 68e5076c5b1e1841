#include "trainer/model/layer_routes.h"

#include <algorithm>
#include <utility>

#include "formats/base/assert.h"
#include "trainer/placement/token_shares.h"

namespace moetrain {

LayerRoutes::LayerRoutes(const LayerSlots& slots, uint32_t experts,
                         std::vector<uint32_t> node_of_rank)
    : groups_of_(experts), slot_ranks_(experts), node_of_rank_(std::move(node_of_rank)) {
  first_group_.reserve(slots.size() + 1);
  size_t next = 0;
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    first_group_.push_back(next);
    std::vector<uint32_t> sorted = slots[rank];
    std::ranges::sort(sorted);
    for (size_t i = 0; i < sorted.size(); ++i) {
      slot_ranks_.at(sorted[i]).push_back(rank);
      if (i > 0 && sorted[i] == sorted[i - 1]) continue;
      groups_of_[sorted[i]].push_back(next++);
    }
  }
  first_group_.push_back(next);
}

std::vector<int64_t> LayerRoutes::share(std::span<const int64_t> tokens) const {
  CKPT_ASSERT(tokens.size() == size_t{ranks()} * experts());
  std::vector<int64_t> rows(ranks() * groups());
  std::vector<int64_t> of_expert(ranks());
  for (uint32_t expert = 0; expert < experts(); ++expert) {
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      of_expert[rank] = tokens[size_t{rank} * experts() + expert];
    }
    const std::vector<uint32_t>& slot_ranks = slot_ranks_[expert];
    if (groups_of_[expert].size() == 1) {  // all to the only holder
      for (uint32_t source = 0; source < ranks(); ++source) {
        rows[source * groups() + groups_of_[expert].front()] = of_expert[source];
      }
      continue;
    }
    const std::vector<int64_t> shares =
        node_of_rank_.empty() ? share_tokens(of_expert, slot_ranks, expert)
                              : share_tokens_by_node(of_expert, slot_ranks, node_of_rank_, expert);
    for (uint32_t source = 0; source < ranks(); ++source) {
      size_t holder = 0;  // slots of one rank are neighbours, so are its holders' groups
      for (size_t slot = 0; slot < slot_ranks.size(); ++slot) {
        if (slot > 0 && slot_ranks[slot] != slot_ranks[slot - 1]) ++holder;
        rows[source * groups() + groups_of_[expert][holder]] +=
            shares[source * slot_ranks.size() + slot];
      }
    }
  }
  return rows;
}

}  // namespace moetrain
