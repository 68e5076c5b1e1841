#include "trainer/placement/flexmoe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace moetrain {

namespace {

constexpr size_t kShrinksTried = 8;

class Scheduler {
 public:
  Scheduler(const PlacementRequest& request, const std::vector<uint64_t>& loads, LayerSlots begin,
            const FlexmoeCosts& costs)
      : request_(request),
        costs_(costs),
        loads_(loads.begin(), loads.end()),
        counts_(loads.size()),
        slots_(std::move(begin)),
        rank_loads_(request.ranks) {
    const double total = std::accumulate(loads_.begin(), loads_.end(), 0.0);
    for (double& load : loads_) load *= request.ranks / total;
    complete();
    for (uint32_t rank = 0; rank < request.ranks; ++rank) {
      for (const uint32_t expert : slots_[rank]) rank_loads_[rank] += share(expert);
    }
  }

  LayerSlots run() {
    // Every change lowers the maximum by at least the cost of a copy; the loop never gets this far.
    for (uint32_t change = 0; change < 4 * request_.slots(); ++change) {
      if (!expand() && !migrate()) break;
    }
    return std::move(slots_);
  }

 private:
  double share(uint32_t expert) const { return loads_[expert] / counts_[expert]; }
  bool holds(uint32_t rank, uint32_t expert) const {
    return std::ranges::find(slots_[rank], expert) != slots_[rank].end();
  }
  bool pays(double after, uint32_t copies) const {
    return (std::ranges::max(rank_loads_) - after) * costs_.steps > copies * costs_.copy;
  }

  // Removes excess replicas, the least loaded first; gives a slot to each expert without one, then
  // fills the rest with the rarest experts.
  void complete() {
    for (auto& rank : slots_) {
      if (rank.size() > request_.slots_per_rank) {
        std::ranges::stable_sort(rank, std::greater<>(), [&](uint32_t e) { return loads_[e]; });
        rank.resize(request_.slots_per_rank);
      }
      for (const uint32_t expert : rank) ++counts_[expert];
    }
    for (uint32_t turn = 0; turn < request_.slots_per_rank; ++turn) {
      for (auto& rank : slots_) {
        if (rank.size() > turn) continue;
        const uint32_t expert = rarest(rank);
        rank.push_back(expert);
        ++counts_[expert];
      }
    }
    for (uint32_t expert = 0; expert < counts_.size(); ++expert) {
      if (counts_[expert] == 0) replace_least_loaded(expert);
    }
  }

  // The expert with the fewest replicas, preferably one that is not on this rank yet.
  uint32_t rarest(const std::vector<uint32_t>& rank) const {
    std::vector<bool> here(counts_.size());
    for (const uint32_t expert : rank) here[expert] = true;
    uint32_t best = 0;
    for (uint32_t expert = 1; expert < counts_.size(); ++expert) {
      if (here[expert] != here[best] ? here[best] : counts_[expert] < counts_[best]) best = expert;
    }
    return best;
  }

  // Replaces the least loaded replica of an expert that has several.
  void replace_least_loaded(uint32_t expert) {
    uint32_t* least = nullptr;
    for (auto& rank : slots_) {
      for (uint32_t& slot : rank) {
        if (counts_[slot] < 2) continue;
        if (least == nullptr || share(slot) < share(*least)) least = &slot;
      }
    }
    if (least == nullptr) return;
    --counts_[*least];
    ++counts_[expert];
    *least = expert;
  }

  // Experts that lose least by one replica fewer, the least loaded first.
  std::vector<uint32_t> idlest(uint32_t than) const {
    std::vector<uint32_t> experts;
    for (uint32_t expert = 0; expert < counts_.size(); ++expert) {
      if (counts_[expert] >= 2 && expert != than) experts.push_back(expert);
    }
    const size_t tried = std::min(experts.size(), kShrinksTried);
    std::ranges::partial_sort(
        experts, experts.begin() + static_cast<ptrdiff_t>(tried),
        [&](uint32_t a, uint32_t b) { return share(a) != share(b) ? share(a) < share(b) : a < b; });
    experts.resize(tried);
    return experts;
  }

  // The loads of all ranks if a replica of `gets` replaced one of `loses` on `target`.
  std::vector<double> loads_after(uint32_t gets, uint32_t loses, uint32_t target) const {
    std::vector<double> after = rank_loads_;
    const double more = loads_[gets] / (counts_[gets] + 1);
    const double fewer = loads_[loses] / (counts_[loses] - 1);
    for (uint32_t rank = 0; rank < after.size(); ++rank) {
      for (const uint32_t expert : slots_[rank]) {
        if (expert == gets) after[rank] += more - share(gets);
        if (expert == loses) after[rank] += fewer - share(loses);
      }
    }
    after[target] += more - fewer;
    return after;
  }

  bool expand() {
    const auto busiest =
        static_cast<uint32_t>(std::ranges::max_element(rank_loads_) - rank_loads_.begin());
    const uint32_t expert = *std::ranges::max_element(
        slots_[busiest], [&](uint32_t a, uint32_t b) { return share(a) < share(b); });
    return std::ranges::any_of(idlest(expert),
                               [&](uint32_t other) { return expand_over(expert, other); });
  }

  // Replaces a replica of `other` by one of `expert`, on the least loaded possible rank.
  bool expand_over(uint32_t expert, uint32_t other) {
    std::optional<uint32_t> target;
    for (uint32_t rank = 0; rank < slots_.size(); ++rank) {
      if (!holds(rank, other) || holds(rank, expert)) continue;
      if (!target || rank_loads_[rank] < rank_loads_[*target]) target = rank;
    }
    if (!target) return false;
    std::vector<double> after = loads_after(expert, other, *target);
    if (!pays(std::ranges::max(after), 1)) return false;
    *std::ranges::find(slots_[*target], other) = expert;
    ++counts_[expert];
    --counts_[other];
    rank_loads_ = std::move(after);
    return true;
  }

  // Swaps a replica of the most loaded rank for a lighter one of another rank.
  bool migrate() {
    std::array<uint32_t, 3> top{};
    std::vector<uint32_t> ranks(slots_.size());
    std::iota(ranks.begin(), ranks.end(), 0u);
    const size_t tops = std::min(top.size(), ranks.size());
    std::ranges::partial_sort_copy(ranks, std::span(top).first(tops), [&](uint32_t a, uint32_t b) {
      return rank_loads_[a] != rank_loads_[b] ? rank_loads_[a] > rank_loads_[b] : a < b;
    });
    const uint32_t busiest = top[0];
    struct Exchange {
      uint32_t* mine = nullptr;
      uint32_t* theirs = nullptr;
      uint32_t rank = 0;
      double less = 0;
      double after = HUGE_VAL;
    } best;
    for (uint32_t rank = 0; rank < slots_.size(); ++rank) {
      if (rank == busiest) continue;
      double others = 0;  // the most loaded of the ranks not in the swap
      for (size_t i = 1; i < tops && others == 0; ++i) {
        if (top[i] != rank) others = rank_loads_[top[i]];
      }
      for (uint32_t& mine : slots_[busiest]) {
        if (holds(rank, mine)) continue;
        for (uint32_t& theirs : slots_[rank]) {
          const double less = share(mine) - share(theirs);
          const double after =
              std::max({others, rank_loads_[busiest] - less, rank_loads_[rank] + less});
          if (less <= 0 || after >= best.after || holds(busiest, theirs)) continue;
          best = {&mine, &theirs, rank, less, after};
        }
      }
    }
    if (best.mine == nullptr || !pays(best.after, 2)) return false;
    std::swap(*best.mine, *best.theirs);
    rank_loads_[busiest] -= best.less;
    rank_loads_[best.rank] += best.less;
    return true;
  }

  const PlacementRequest& request_;
  const FlexmoeCosts costs_;
  std::vector<double> loads_;  // in units of the mean load of a rank
  std::vector<uint32_t> counts_;
  LayerSlots slots_;
  std::vector<double> rank_loads_;
};

}  // namespace

std::vector<LayerSlots> plan_flexmoe(const PlacementRequest& request, const FlexmoeCosts& costs) {
  std::vector<LayerSlots> layers;
  layers.reserve(request.layers());
  for (uint32_t layer = 0; layer < request.layers(); ++layer) {
    LayerSlots begin = request.current.empty() ? LayerSlots(request.ranks) : request.current[layer];
    layers.push_back(Scheduler(request, request.loads[layer], std::move(begin), costs).run());
  }
  return layers;
}

}  // namespace moetrain
