#include "trainer/placement/lazarus.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "formats/base/assert.h"
#include "trainer/placement/allocation.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// What the search may cost, in words of recovery.h's sets: 5 ms for 16 ranks, all exchanges several
// times over for 6.
constexpr uint64_t kSearchWords = 1u << 18;

bool holds(const std::vector<uint32_t>& rank, uint32_t expert) {
  return std::find(rank.begin(), rank.end(), expert) != rank.end();
}

// Builds a placement replica by replica.
class Builder {
 public:
  Builder(std::span<const uint32_t> replicas, const LazarusOptions& options)
      : left_(replicas.begin(), replicas.end()), options_(options), slots_(options.ranks) {}

  void put(uint32_t expert, uint32_t rank) {
    CKPT_ASSERT(left_[expert] > 0 && slots_[rank].size() < options_.slots_per_rank);
    slots_[rank].push_back(expert);
    --left_[expert];
  }

  // Those with most replicas left first, each on the emptiest ranks that do not hold it yet.
  LayerSlots fill() {
    std::vector<uint32_t> order(left_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return left_[a] > left_[b]; });
    for (const uint32_t expert : order) {
      while (left_[expert] > 0) put(expert, roomiest_rank(expert));
    }
    return std::move(slots_);
  }

 private:
  uint32_t roomiest_rank(uint32_t expert) const {
    const auto key = [&](uint32_t rank) {
      const bool full = slots_[rank].size() == options_.slots_per_rank;
      return std::tuple(full, holds(slots_[rank], expert), slots_[rank].size(), rank);
    };
    uint32_t best = 0;
    for (uint32_t rank = 1; rank < options_.ranks; ++rank) {
      if (key(rank) < key(best)) best = rank;
    }
    return best;
  }

  std::vector<uint32_t> left_;
  const LazarusOptions& options_;
  LayerSlots slots_;
};

LayerSlots overlap(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  Builder builder(replicas, options);
  std::vector<uint32_t> ascending(replicas.size());
  std::iota(ascending.begin(), ascending.end(), 0u);
  std::stable_sort(ascending.begin(), ascending.end(),
                   [&](uint32_t a, uint32_t b) { return replicas[a] < replicas[b]; });
  const size_t group = options.slots_per_rank;
  if (ascending.size() <= group) {  // nested sets: everybody begins at rank 0
    for (const uint32_t expert : ascending) {
      const uint32_t ranks = std::min(replicas[expert], options.ranks);
      for (uint32_t rank = 0; rank < ranks; ++rank) builder.put(expert, rank);
    }
    return builder.fill();
  }
  uint32_t next = 0;
  for (size_t begin = 0; begin < ascending.size(); begin += group) {
    const size_t end = std::min(begin + group, ascending.size());
    const uint32_t left = options.ranks - next;
    const uint32_t ranks = std::min(replicas[ascending[begin]], left);
    for (uint32_t rank = next; rank < next + ranks; ++rank) {
      for (size_t i = begin; i < end; ++i) builder.put(ascending[i], rank);
    }
    next += ranks;
  }
  return builder.fill();
}

// Replicas one after the other around the ranks.
LayerSlots ring(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  LayerSlots slots(options.ranks);
  uint32_t at = 0;
  for (uint32_t expert = 0; expert < replicas.size(); ++expert) {
    for (uint32_t i = 0; i < replicas[expert]; ++i) slots[at++ % options.ranks].push_back(expert);
  }
  return slots;
}

class Search {
 public:
  Search(uint32_t experts, const LazarusOptions& options)
      : experts_(experts),
        options_(options),
        cost_(std::max<uint64_t>(1, (uint64_t{1} << options.ranks) / 64)) {}

  struct Rating {
    uint64_t short_of_holders = 0;
    std::vector<uint64_t> fatal;  // [k]: sets of k dead ranks that are not survived
    auto operator<=>(const Rating&) const = default;
  };

  Rating rate(const LayerSlots& slots) const {
    const std::vector<RankMask> masks = holder_masks(slots, experts_);
    Rating rating{.short_of_holders = short_of_holders(masks), .fatal = {}};
    const std::vector<uint64_t> surviving = surviving_sets(masks, options_.ranks);
    for (uint32_t k = 0; k <= options_.ranks; ++k) {
      rating.fatal.push_back(binomial(options_.ranks, k) - surviving[k]);
    }
    return rating;
  }

  // Exchanges two slots as long as that helps and the search may go on.
  Rating improve(LayerSlots& slots) const {
    while (exchange_once(slots, [&] { return short_of_holders(holder_masks(slots, experts_)); })) {
    }
    uint64_t rounds = kSearchWords / cost_;
    Rating best = rate(slots);
    while (rounds > 0 && exchange_for(slots, best, rounds)) {
    }
    return best;
  }

 private:
  uint64_t short_of_holders(const std::vector<RankMask>& masks) const {
    const auto wanted = static_cast<int>(std::min(options_.replicas_min, options_.ranks));
    uint64_t missing = 0;
    for (const RankMask mask : masks) {
      missing += static_cast<uint64_t>(std::max(0, wanted - std::popcount(mask)));
    }
    return missing;
  }

  // Every pair of slots on different ranks that hold different experts: exchanges them, and back
  // again unless `keep()`. True as soon as one was kept; `go_on` may end it before.
  template <typename Keep, typename GoOn>
  bool exchange(LayerSlots& slots, const Keep& keep, const GoOn& go_on) const {
    const uint32_t per_rank = options_.slots_per_rank;
    const uint32_t count = options_.ranks * per_rank;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t j = (i / per_rank + 1) * per_rank; j < count; ++j) {
        uint32_t& a = slots[i / per_rank][i % per_rank];
        uint32_t& b = slots[j / per_rank][j % per_rank];
        if (a == b) continue;
        if (!go_on()) return false;
        std::swap(a, b);
        if (keep()) return true;
        std::swap(a, b);
      }
    }
    return false;
  }

  template <typename Missing>
  bool exchange_once(LayerSlots& slots, const Missing& missing) const {
    const uint64_t before = missing();
    if (before == 0) return false;
    return exchange(
        slots, [&] { return missing() < before; }, [] { return true; });
  }

  bool exchange_for(LayerSlots& slots, Rating& best, uint64_t& rounds) const {
    const auto better = [&] {
      --rounds;
      Rating rating = rate(slots);
      if (rating >= best) return false;
      best = std::move(rating);
      return true;
    };
    return exchange(slots, better, [&] { return rounds > 0; });
  }

  const uint32_t experts_;
  const LazarusOptions& options_;
  const uint64_t cost_;  // words looked at to rate a placement
};

}  // namespace

LayerSlots place_replicas(std::span<const uint32_t> replicas, const LazarusOptions& options) {
  const auto experts = static_cast<uint32_t>(replicas.size());
  CKPT_ASSERT(options.ranks >= 1 && options.ranks <= kExactRanksMax);
  CKPT_ASSERT(std::accumulate(replicas.begin(), replicas.end(), uint64_t{0}) ==
              uint64_t{options.ranks} * options.slots_per_rank);
  const Search search(experts, options);
  LayerSlots candidates[] = {overlap(replicas, options), ring(replicas, options),
                             Builder(replicas, options).fill()};
  LayerSlots* best = nullptr;
  Search::Rating best_rating;
  for (LayerSlots& candidate : candidates) {
    Search::Rating rating = search.improve(candidate);
    if (best != nullptr && rating >= best_rating) continue;
    best = &candidate;
    best_rating = std::move(rating);
  }
  return std::move(*best);
}

Result<LayerSlots> lazarus_layer(std::span<const uint64_t> loads, const LazarusOptions& options) {
  if (options.ranks == 0 || options.ranks > kExactRanksMax || options.slots_per_rank == 0 ||
      options.slots_per_rank > UINT32_MAX / kExactRanksMax) {
    return make_error(ErrorCode::kInvalidArgument,
                      "placement: {} ranks of {} slots; 1 to {} ranks of at least one slot",
                      options.ranks, options.slots_per_rank, kExactRanksMax);
  }
  CKPT_ASSIGN(
      const std::vector<uint32_t> replicas,
      allocate_replicas(loads, options.ranks * options.slots_per_rank, options.replicas_min));
  return place_replicas(replicas, options);
}

}  // namespace moetrain
