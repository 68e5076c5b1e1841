#include "trainer/placement/overlap.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

// Builds a placement replica by replica.
class Builder {
 public:
  Builder(std::span<const uint32_t> replicas, const LazarusOptions& options)
      : left_(replicas.begin(), replicas.end()),
        options_(options),
        slots_(options.ranks),
        held_(replicas.size() * options.ranks) {}

  void put(uint32_t expert, uint32_t rank) {
    CKPT_ASSERT(left_[expert] > 0 && slots_[rank].size() < options_.slots_per_rank);
    slots_[rank].push_back(expert);
    held_[size_t{expert} * options_.ranks + rank] = true;
    --left_[expert];
  }

  // Puts replicas on the roomiest ranks of the roomiest domains, one in each.
  void put_in_domains(uint32_t expert, uint32_t count) {
    struct Choice {
      size_t room = 0;
      uint32_t rank = UINT32_MAX;
    };
    std::vector<Choice> domains(options_.domains());
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      Choice& domain = domains[options_.domain(rank)];
      const size_t room = options_.slots_per_rank - slots_[rank].size();
      if (room > 0 && (domain.rank == UINT32_MAX || roomier(rank, domain.rank))) domain.rank = rank;
      domain.room += room;
    }
    std::erase_if(domains, [](const Choice& domain) { return domain.room == 0; });
    std::stable_sort(domains.begin(), domains.end(),
                     [](const Choice& a, const Choice& b) { return a.room > b.room; });
    const size_t most = std::min<size_t>({count, domains.size(), left_[expert]});
    for (size_t i = 0; i < most; ++i) put(expert, domains[i].rank);
  }

  // Places the experts with most replicas left first, each on the emptiest ranks without it.
  LayerSlots fill() {
    std::vector<uint32_t> order(left_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return left_[a] > left_[b]; });
    for (const uint32_t expert : order) {
      while (left_[expert] > 0) fill_with(expert);
    }
    return std::move(slots_);
  }

 private:
  bool roomier(uint32_t a, uint32_t b) const { return slots_[a].size() < slots_[b].size(); }
  bool holds(uint32_t expert, uint32_t rank) const {
    return held_[size_t{expert} * options_.ranks + rank];
  }

  // One replica on each rank with room, until none is left.
  void fill_with(uint32_t expert) {
    std::vector<std::tuple<bool, size_t, uint32_t>> ranks;
    ranks.reserve(options_.ranks);
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (slots_[rank].size() == options_.slots_per_rank) continue;
      ranks.emplace_back(holds(expert, rank), slots_[rank].size(), rank);
    }
    std::ranges::sort(ranks);
    for (const auto& [holding, size, rank] : ranks) {
      if (left_[expert] == 0) return;
      put(expert, rank);
    }
  }

  std::vector<uint32_t> left_;
  const LazarusOptions& options_;
  LayerSlots slots_;
  std::vector<bool> held_;  // [expert][rank]
};

// Ranks in an order in which neighbours are of different domains, as far as possible.
std::vector<uint32_t> interleaved(const LazarusOptions& options) {
  std::vector<uint32_t> turn(options.domains());
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> ranks;
  ranks.reserve(options.ranks);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    const uint32_t domain = options.domain(rank);
    ranks.emplace_back(turn[domain]++, domain, rank);
  }
  std::ranges::sort(ranks);
  std::vector<uint32_t> order;
  order.reserve(options.ranks);
  for (const auto& [at, domain, rank] : ranks) order.push_back(rank);
  return order;
}

std::vector<uint32_t> ascending(std::span<const uint32_t> replicas) {
  std::vector<uint32_t> order(replicas.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return replicas[a] < replicas[b]; });
  return order;
}

// Counts the replicas of each expert by domain, kept up to date.
class DomainCounts {
 public:
  DomainCounts(const LayerSlots& slots, std::span<const uint32_t> replicas,
               const LazarusOptions& options)
      : domains_(options.domains()),
        counts_(replicas.size() * domains_),
        distinct_(replicas.size()) {
    for (const uint32_t count : replicas) {
      wanted_.push_back(std::min({options.replicas_min, domains_, count}));
    }
    for (uint32_t rank = 0; rank < slots.size(); ++rank) {
      for (const uint32_t expert : slots[rank]) add(expert, options.domain(rank));
    }
  }
  uint32_t count(uint32_t expert, uint32_t domain) const {
    return counts_[size_t{expert} * domains_ + domain];
  }
  uint32_t missing(uint32_t expert) const {
    return wanted_[expert] - std::min(wanted_[expert], distinct_[expert]);
  }
  void add(uint32_t expert, uint32_t domain) {
    if (counts_[size_t{expert} * domains_ + domain]++ == 0) ++distinct_[expert];
  }
  void remove(uint32_t expert, uint32_t domain) {
    if (--counts_[size_t{expert} * domains_ + domain] == 0) --distinct_[expert];
  }
  // True if the expert, moved between these domains, still has enough distinct domains.
  bool may_move(uint32_t expert, uint32_t from, uint32_t to) const {
    const bool leaves = count(expert, from) == 1;
    const bool arrives = count(expert, to) == 0;
    return !leaves || arrives || distinct_[expert] > wanted_[expert];
  }

 private:
  const uint32_t domains_;
  std::vector<uint32_t> counts_;  // [expert][domain]
  std::vector<uint32_t> distinct_;
  std::vector<uint32_t> wanted_;
};

// One exchange that brings `expert` to another domain.
bool bring_to_domain(uint32_t expert, LayerSlots& slots, const LazarusOptions& options,
                     DomainCounts& counts) {
  for (uint32_t from = 0; from < slots.size(); ++from) {
    const auto mine = std::ranges::find(slots[from], expert);
    const uint32_t here = options.domain(from);
    if (mine == slots[from].end() || counts.count(expert, here) < 2) continue;
    for (uint32_t to = 0; to < slots.size(); ++to) {
      const uint32_t there = options.domain(to);
      if (counts.count(expert, there) > 0) continue;
      for (uint32_t& other : slots[to]) {
        if (!counts.may_move(other, there, here)) continue;
        counts.remove(expert, here);
        counts.add(expert, there);
        counts.remove(other, there);
        counts.add(other, here);
        std::swap(*mine, other);
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Overlap overlap_placement(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  Builder builder(replicas, options);
  const std::vector<uint32_t> order = ascending(replicas);
  const std::vector<uint32_t> ranks_in_order = interleaved(options);
  const size_t group = options.slots_per_rank;
  if (order.size() <= group) {  // nested sets: every expert begins at the first rank
    for (const uint32_t expert : order) {
      const uint32_t ranks = std::min(replicas[expert], options.ranks);
      for (uint32_t i = 0; i < ranks; ++i) builder.put(expert, ranks_in_order[i]);
    }
    return {builder.fill(), true};
  }
  bool whole = true;
  uint32_t next = 0;
  for (size_t begin = 0; begin < order.size(); begin += group) {
    const size_t end = std::min(begin + group, order.size());
    const uint32_t left = options.ranks - next;
    const uint32_t wanted = replicas[order[begin]];
    whole = whole && wanted <= left;
    const uint32_t ranks = std::min(wanted, left);
    for (uint32_t rank = next; rank < next + ranks; ++rank) {
      for (size_t i = begin; i < end; ++i) builder.put(order[i], ranks_in_order[rank]);
    }
    next += ranks;
  }
  return {builder.fill(), whole};
}

LayerSlots ring_placement(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  const std::vector<uint32_t> order = interleaved(options);
  LayerSlots slots(options.ranks);
  uint32_t at = 0;
  for (uint32_t expert = 0; expert < replicas.size(); ++expert) {
    for (uint32_t i = 0; i < replicas[expert]; ++i) {
      slots[order[at++ % options.ranks]].push_back(expert);
    }
  }
  return slots;
}

LayerSlots spread_placement(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  return Builder(replicas, options).fill();
}

LayerSlots promised_placement(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  Builder builder(replicas, options);
  for (uint32_t expert = 0; expert < replicas.size(); ++expert) {
    builder.put_in_domains(expert, options.replicas_min);
  }
  return builder.fill();
}

uint64_t short_of_domains(const LayerSlots& slots, std::span<const uint32_t> replicas,
                          const LazarusOptions& options) {
  const DomainCounts counts(slots, replicas, options);
  uint64_t missing = 0;
  for (uint32_t expert = 0; expert < replicas.size(); ++expert) missing += counts.missing(expert);
  return missing;
}

bool repair_domains(LayerSlots& slots, std::span<const uint32_t> replicas,
                    const LazarusOptions& options) {
  DomainCounts counts(slots, replicas, options);
  for (uint32_t expert = 0; expert < replicas.size(); ++expert) {
    while (counts.missing(expert) > 0) {
      if (!bring_to_domain(expert, slots, options, counts)) return false;
    }
  }
  return true;
}

}  // namespace moetrain
