// The local search of LayerSearch: moves, their effects, and the choice of the next one.
//
// The search minimises a sum over ranks of a high power of the load: close to the maximum, but it
// also tells which of two placements with the same maximum is nearer to a better one.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trainer/placement/layer_search.h"

namespace moetrain {

namespace {

constexpr size_t kSourcesMax = 3;  // most loaded ranks that are tried before the search ends
constexpr uint32_t kKickMoves = 4;
constexpr size_t kTargetsMax = 16;  // least loaded ranks that take replicas from them
constexpr double kUnknown = HUGE_VAL;
constexpr int64_t kProbesOfRanking = 4;  // one rank in nearly sorted order

double potential(double load) {
  const double squared = load * load;
  const double fourth = squared * squared;
  return fourth * fourth;
}

}  // namespace

// Change of the potential on the expert's ranks by one more replica.
double LayerSearch::relief(uint32_t expert) {
  if (relief_[expert] != kUnknown) return relief_[expert];
  const double less = loads_[expert] / (replicas_[expert] + 1) - share(expert);
  return relief_[expert] = change_of_share(expert, less);
}

// Change of the potential on the expert's ranks by one replica less, if all ranks kept theirs.
double LayerSearch::burden(uint32_t expert) {
  if (burden_[expert] != kUnknown) return burden_[expert];
  const double more = loads_[expert] / (replicas_[expert] - 1) - share(expert);
  return burden_[expert] = change_of_share(expert, more);
}

double LayerSearch::change_of_share(uint32_t expert, double by) {
  double change = 0;
  for (const uint32_t rank : at_[expert]) {
    const double load = rank_loads_[rank];
    change += potential(load + held(expert, rank) * by) - potential(load);
  }
  probes_ += static_cast<int64_t>(at_[expert].size());
  return change;
}

// Effect of replacing, on this rank, a replica of `loses` (which has others) by one of `gets`
// (which is not there). Stops early once the change is at least `enough`.
double LayerSearch::change_of_replace(uint32_t gets, uint32_t loses, uint32_t rank, double enough) {
  const double now_gets = loads_[gets] / (replicas_[gets] + 1);
  const double now_loses = loads_[loses] / (replicas_[loses] - 1);
  const double less = now_gets - share(gets);
  const double more = now_loses - share(loses);
  const double kept = rank_loads_[rank] + held(loses, rank) * more;
  const double here = potential(kept + now_gets - now_loses) - potential(kept);
  ++probes_;
  // The burden of `loses` on its other ranks is never a relief.
  if (relief(gets) + here >= enough) return enough;
  double change = relief(gets) + burden(loses);
  // On ranks with both, the changes are not additive.
  for (const uint32_t holder : at_[loses]) {
    if (!holds(gets, holder)) continue;
    const double load = rank_loads_[holder];
    const double down = held(gets, holder) * less;
    const double up = held(loses, holder) * more;
    change += potential(load + down + up) - potential(load + down) - potential(load + up) +
              potential(load);
  }
  probes_ += static_cast<int64_t>(at_[loses].size());
  return change + here;
}

// Effect of two experts exchanging all their slots; `b` has fewer tokens. Stops early once the
// change exceeds `enough`.
double LayerSearch::change_of_relabel(uint32_t a, uint32_t b, double enough) {
  const double on_a = (loads_[b] - loads_[a]) / replicas_[a];
  const double on_b = (loads_[a] - loads_[b]) / replicas_[b];
  double change = 0;
  for (const uint32_t rank : at_[a]) {
    const double load = rank_loads_[rank];
    change += potential(load + held(a, rank) * on_a + held(b, rank) * on_b) - potential(load);
  }
  probes_ += static_cast<int64_t>(at_[a].size());
  for (const uint32_t rank : at_[b]) {
    ++probes_;
    if (holds(a, rank)) continue;
    const double load = rank_loads_[rank];
    change += potential(load + held(b, rank) * on_b) - potential(load);
    if (change >= enough) break;
  }
  return change;
}

void LayerSearch::consider_swaps(uint32_t rank, std::span<const uint32_t> targets, Move& best) {
  const double here = potential(rank_loads_[rank]);
  for (const uint32_t target : targets) {
    if (target == rank) continue;
    const double before = here + potential(rank_loads_[target]);
    const double gap = rank_loads_[rank] - rank_loads_[target];
    // Lower bound: equal loads afterwards. The following targets are more loaded.
    if (2 * potential(rank_loads_[rank] - gap / 2) - before >= best.change) break;
    probes_ += static_cast<int64_t>(slots_[rank].size());
    for (const uint32_t expert : slots_[rank]) {
      if (holds(expert, target)) continue;
      const double share_here = share(expert);
      probes_ += static_cast<int64_t>(slots_[target].size());
      for (const uint32_t other : slots_[target]) {
        const double less = share_here - share(other);
        if (less <= 0 || less >= gap) continue;
        const double change =
            potential(rank_loads_[rank] - less) + potential(rank_loads_[target] + less) - before;
        if (change >= best.change || holds(other, rank) || !may_leave(expert, rank, target) ||
            !may_leave(other, target, rank)) {
          continue;
        }
        best = {Move::Kind::kSwap, expert, other, rank, target, change};
      }
    }
  }
}

// Considers a further replica, elsewhere, of each expert on the rank.
void LayerSearch::consider_replicas(uint32_t rank, std::span<const uint32_t> targets, Move& best) {
  for (const uint32_t target : targets) {
    if (target == rank) continue;
    for (const uint32_t other : slots_[target]) {
      if (replicas_[other] <= least_ || !may_leave(other, target, kNoRank)) continue;
      const double room = rank_loads_[rank] - rank_loads_[target] + share(other);
      probes_ += static_cast<int64_t>(slots_[rank].size());
      for (const uint32_t expert : slots_[rank]) {
        const double taken = loads_[expert] / (replicas_[expert] + 1);
        if (taken >= room || holds(expert, target)) continue;
        const double change = change_of_replace(expert, other, target, best.change);
        if (change < best.change) {
          best = {Move::Kind::kReplace, expert, other, rank, target, change};
        }
      }
    }
  }
}

// Considers replacing an expert on the rank by one with fewer tokens per replica.
void LayerSearch::consider_removals(uint32_t rank, Move& best) {
  for (const uint32_t other : slots_[rank]) {
    if (replicas_[other] <= least_ || !may_leave(other, rank, kNoRank)) continue;
    probes_ += experts_;
    for (uint32_t expert = 0; expert < experts_; ++expert) {
      if (holds(expert, rank) || share(expert) > 2 * share(other)) continue;
      const double change = change_of_replace(expert, other, rank, best.change);
      if (change < best.change) best = {Move::Kind::kReplace, expert, other, rank, rank, change};
    }
  }
}

void LayerSearch::consider_relabels(uint32_t rank, Move& best) {
  for (const uint32_t expert : slots_[rank]) {
    probes_ += experts_;
    for (uint32_t other = 0; other < experts_; ++other) {
      if (other == expert || loads_[other] >= loads_[expert]) continue;
      const double change = change_of_relabel(expert, other, best.change);
      if (change < best.change) best = {Move::Kind::kRelabel, expert, other, rank, rank, change};
    }
  }
}

void LayerSearch::relabel(uint32_t a, uint32_t b) {
  std::vector<uint32_t> ranks = at_[a];
  ranks.insert(ranks.end(), at_[b].begin(), at_[b].end());
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  probes_ += static_cast<int64_t>(ranks.size() * (1 + request_.slots_per_rank));
  probes_ += (int64_t{ranks_} + domains_) / 4;
  const double on_a = (loads_[b] - loads_[a]) / replicas_[a];
  const double on_b = (loads_[a] - loads_[b]) / replicas_[b];
  for (const uint32_t rank : ranks) {
    rank_loads_[rank] += held(a, rank) * on_a + held(b, rank) * on_b;
    // Append: the search checks slots in this order.
    std::erase_if(slots_[rank], [&](uint32_t expert) { return expert == a || expert == b; });
    slots_[rank].insert(slots_[rank].end(), held(b, rank), a);
    slots_[rank].insert(slots_[rank].end(), held(a, rank), b);
  }
  std::swap(at_[a], at_[b]);
  std::swap(replicas_[a], replicas_[b]);
  shares_[a] = loads_[a] / replicas_[a];
  shares_[b] = loads_[b] / replicas_[b];
  std::swap(distinct_[a], distinct_[b]);
  std::swap(whole_members_[a], whole_members_[b]);
  const auto swap_rows = [&](std::vector<uint32_t>& rows, size_t width) {
    std::swap_ranges(rows.data() + a * width, rows.data() + (a + 1) * width,
                     rows.data() + b * width);
  };
  swap_rows(on_rank_, ranks_);
  swap_rows(in_domain_, domains_);
  swap_rows(of_member_, family_.members.size());
}

void LayerSearch::forget() {
  std::ranges::fill(relief_, kUnknown);
  std::ranges::fill(burden_, kUnknown);
}

void LayerSearch::apply(const Move& move) {
  forget();
  if (move.kind == Move::Kind::kRelabel) return relabel(move.expert, move.other);
  // Add before removing: an expert without replicas would have an infinite share.
  put(move.expert, move.target);
  if (move.kind == Move::Kind::kSwap) put(move.other, move.rank);
  take(move.other, move.target);
  if (move.kind == Move::Kind::kSwap) take(move.expert, move.rank);
}

bool LayerSearch::improve_from(uint32_t rank, std::span<const uint32_t> targets) {
  Move best;
  consider_swaps(rank, targets, best);
  consider_replicas(rank, targets, best);
  consider_removals(rank, best);
  if (best.kind == Move::Kind::kNone) consider_relabels(rank, best);
  if (best.kind == Move::Kind::kNone) return false;
  apply(best);
  return true;
}

void LayerSearch::kick(std::mt19937& random) {
  for (uint32_t i = 0; i < kKickMoves; ++i) {
    const auto a = static_cast<uint32_t>(random() % experts_);
    const auto b = static_cast<uint32_t>(random() % experts_);
    if (a != b) relabel(a, b);
  }
}

void LayerSearch::improve(int64_t& work, double enough) {
  std::vector<uint32_t> by_load(ranks_);
  std::iota(by_load.begin(), by_load.end(), 0u);
  forget();
  bool moved = true;
  while (moved && probes_ < work && max_over_mean() > enough) {
    probes_ += kProbesOfRanking * int64_t{ranks_} + experts_;
    std::ranges::sort(by_load, [&](uint32_t a, uint32_t b) {
      return rank_loads_[a] != rank_loads_[b] ? rank_loads_[a] < rank_loads_[b] : a < b;
    });
    const std::span<const uint32_t> targets(by_load.data(), std::min<size_t>(ranks_, kTargetsMax));
    const size_t sources = std::min<size_t>(ranks_, kSourcesMax);
    moved = false;
    for (size_t i = 0; i < sources && !moved; ++i) {
      moved = improve_from(by_load[ranks_ - 1 - i], targets);
    }
  }
  work -= std::exchange(probes_, 0);
}

}  // namespace moetrain
