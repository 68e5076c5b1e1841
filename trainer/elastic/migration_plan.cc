#include "trainer/elastic/migration_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

namespace moetrain {
namespace {

// Items with a holder and a rank that needs them, the fewest holders first, then the largest.
std::vector<uint32_t> order_of(std::span<const MovingItem> items) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (items[a].holders.size() != items[b].holders.size()) {
      return items[a].holders.size() < items[b].holders.size();
    }
    return items[a].bytes > items[b].bytes;
  });
  return order;
}

std::vector<Move> choose_sources(std::span<const MovingItem> items, uint32_t ranks) {
  std::vector<uint64_t> sends(ranks);
  std::vector<Move> moves;
  for (const uint32_t i : order_of(items)) {
    const MovingItem& item = items[i];
    if (item.holders.empty()) continue;
    for (const uint32_t to : item.wanted) {
      if (std::binary_search(item.holders.begin(), item.holders.end(), to)) continue;
      const uint32_t from =
          *std::min_element(item.holders.begin(), item.holders.end(),
                            [&](uint32_t a, uint32_t b) { return sends[a] < sends[b]; });
      sends[from] += item.bytes;
      moves.push_back({i, from, to});
    }
  }
  return moves;
}

// Assigns each domain's planned experts to a domain with as many ranks, once for all ranks of it.
class DomainsTaken {
 public:
  explicit DomainsTaken(const RankGroup& group)
      : group_(group), size_(group.domains()), taken_by_(group.domains()), takes_(group.domains()) {
    for (uint32_t rank = 0; rank < group.ranks; ++rank) ++size_[group.domain(rank)];
  }

  // Gives this rank the place planned for rank `as`, if that is possible; false if not.
  bool take(uint32_t rank, uint32_t as) {
    const uint32_t to = group_.domain(rank);
    const uint32_t from = group_.domain(as);
    if (!takes_[to] && !taken_by_[from] && size_[to] == size_[from]) {
      takes_[to] = from;
      taken_by_[from] = to;
    }
    return takes_[to] == from;
  }

 private:
  const RankGroup& group_;
  std::vector<uint32_t> size_;
  std::vector<std::optional<uint32_t>> taken_by_;
  std::vector<std::optional<uint32_t>> takes_;
};

}  // namespace

MigrationPlan plan_migration(std::span<const MovingItem> items, uint32_t ranks,
                             uint64_t budget_bytes) {
  MigrationPlan plan;
  for (uint32_t i = 0; i < items.size(); ++i) {
    if (items[i].holders.empty() && !items[i].wanted.empty()) plan.lost.push_back(i);
  }
  // First fit into rounds.
  std::vector<std::vector<uint64_t>> sent;
  std::vector<std::vector<uint64_t>> received;
  for (const Move& move : choose_sources(items, ranks)) {
    const uint64_t bytes = items[move.item].bytes;
    const auto fits = [&](uint64_t used) { return used == 0 || used + bytes <= budget_bytes; };
    size_t round = 0;
    while (round < plan.rounds.size() &&
           !(fits(sent[round][move.from]) && fits(received[round][move.to]))) {
      ++round;
    }
    if (round == plan.rounds.size()) {
      plan.rounds.emplace_back();
      sent.emplace_back(ranks);
      received.emplace_back(ranks);
    }
    plan.rounds[round].push_back(move);
    sent[round][move.from] += bytes;
    received[round][move.to] += bytes;
    plan.bytes += bytes;
  }
  for (std::vector<Move>& round : plan.rounds) {
    std::sort(round.begin(), round.end(), [](const Move& a, const Move& b) {
      return std::tie(a.from, a.to, a.item) < std::tie(b.from, b.to, b.item);
    });
  }
  return plan;
}

ComputePlacement keep_in_place(const ComputePlacement& placement,
                               const std::vector<std::vector<bool>>& held, const RankGroup& group) {
  struct Match {
    uint32_t common;
    uint32_t rank;
    uint32_t as;  // what `placement` gives to this rank
  };
  std::vector<Match> matches;
  matches.reserve(size_t{placement.ranks} * placement.ranks);
  for (uint32_t as = 0; as < placement.ranks; ++as) {
    for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
      uint32_t common = 0;
      for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
        for (const uint32_t expert : experts_of_rank(placement, layer, as)) {
          common += held[rank][size_t{layer} * placement.experts + expert] ? 1 : 0;
        }
      }
      matches.push_back({common, rank, as});
    }
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const Match& a, const Match& b) { return a.common > b.common; });
  std::vector<bool> rank_done(placement.ranks);
  std::vector<bool> as_done(placement.ranks);
  DomainsTaken domains(group);
  ComputePlacement permuted = placement;
  for (const Match& match : matches) {
    if (rank_done[match.rank] || as_done[match.as]) continue;
    if (!domains.take(match.rank, match.as)) continue;
    rank_done[match.rank] = as_done[match.as] = true;
    for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
      permuted.slots[layer][match.rank] = placement.slots[layer][match.as];
    }
  }
  return permuted;
}

}  // namespace moetrain
