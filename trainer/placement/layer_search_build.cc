// Initial placement of LayerSearch: every expert on a member of the family, then the other slots.
#include <algorithm>
#include <functional>
#include <numeric>

#include "trainer/placement/layer_search.h"

namespace moetrain {

namespace {

constexpr double kMisjudgedMin = 2.0 / 3;  // random factor of a load, for another start
// Costs in probes of the load of a rank, a few ns each.
constexpr int64_t kProbesOfSorting = 8;  // one element of many
constexpr size_t kClearedPerProbe = 16;  // if all are cleared

template <typename T>
T pop_least(std::vector<T>& heap) {
  std::ranges::pop_heap(heap, std::greater<>());
  T least = heap.back();
  heap.pop_back();
  return least;
}

template <typename T>
void push(std::vector<T>& heap, const T& value) {
  heap.push_back(value);
  std::ranges::push_heap(heap, std::greater<>());
}

}  // namespace

bool fits(const Family& family, std::vector<uint32_t> room, uint32_t experts) {
  uint64_t fit = 0;
  if (family.members.empty()) {
    for (const uint32_t slots : room) fit += std::min(slots, experts);
    return fit >= uint64_t{experts} * family.free_size;
  }
  for (const std::vector<uint32_t>& member : family.members) {
    uint32_t least = UINT32_MAX;
    for (const uint32_t domain : member) least = std::min(least, room[domain]);
    fit += least;
    for (const uint32_t domain : member) room[domain] -= least;
    if (fit >= experts) return true;
  }
  return fit >= experts;
}

uint32_t LayerSearch::lightest_in(uint32_t domain, uint32_t expert) {
  probes_ += static_cast<int64_t>(ranks_of_domain_[domain].size());
  uint32_t best = kNoRank;
  for (const uint32_t rank : ranks_of_domain_[domain]) {
    if (full(rank) || holds(expert, rank)) continue;
    if (best == kNoRank || planned_loads_[rank] < planned_loads_[best]) best = rank;
  }
  return best;
}

void LayerSearch::plan_put(uint32_t expert, uint32_t domain, double share) {
  const uint32_t rank = lightest_in(domain, expert);
  place(expert, rank);
  planned_loads_[rank] += share;
}

int64_t LayerSearch::room_in(uint32_t domain) {
  probes_ += static_cast<int64_t>(ranks_of_domain_[domain].size());
  int64_t room = 0;
  for (const uint32_t rank : ranks_of_domain_[domain]) {
    room += request_.slots_per_rank - static_cast<int64_t>(slots_[rank].size());
  }
  return room;
}

// The largest load of a rank that the member would take; none if one of its domains is full.
std::optional<double> LayerSearch::peak_of(const std::vector<uint32_t>& member, uint32_t expert) {
  double peak = 0;
  for (const uint32_t domain : member) {
    const uint32_t rank = lightest_in(domain, expert);
    if (rank == kNoRank) return std::nullopt;
    peak = std::max(peak, planned_loads_[rank]);
  }
  return peak;
}

// Puts the expert on the member whose ranks end up least loaded. Heap entries may be stale, but
// loads only grow during assignment: a first entry that is up to date is the least.
bool LayerSearch::assign_member(uint32_t expert, double share) {
  while (!members_by_peak_.empty()) {
    const auto [known, member] = pop_least(members_by_peak_);
    probes_ += kProbesOfSorting;
    const std::optional<double> peak = peak_of(family_.members[member], expert);
    if (!peak) continue;  // and stays full
    if (*peak == known) {
      for (const uint32_t domain : family_.members[member]) plan_put(expert, domain, share);
    }
    push(members_by_peak_, {*peak, member});
    if (*peak == known) return true;
  }
  return false;
}

// Puts the expert on the domains with most room, among those on the least loaded: room first, so
// that domains of different sizes do not fill up before every expert has enough of them. The heap
// works like that of the members: room only shrinks.
bool LayerSearch::assign_free(uint32_t expert, double share) {
  std::vector<DomainChoice> chosen;
  chosen.reserve(std::min(family_.free_size, domains_));
  while (chosen.size() < family_.free_size && !domains_by_room_.empty()) {
    const DomainChoice known = pop_least(domains_by_room_);
    probes_ += kProbesOfSorting;
    const int64_t room = room_in(known.domain);
    if (room == 0) continue;
    const double load = planned_loads_[lightest_in(known.domain, expert)];
    const DomainChoice now{.less_room = -room, .load = load, .domain = known.domain};
    if (now == known) {
      chosen.push_back(now);
    } else {
      push(domains_by_room_, now);
    }
  }
  for (const DomainChoice& choice : chosen) push(domains_by_room_, choice);
  if (chosen.size() < family_.free_size) return false;
  for (const DomainChoice& choice : chosen) plan_put(expert, choice.domain, share);
  return true;
}

// Replicas by load alone, with `least` for every expert: the next one goes to the expert with most
// tokens per replica.
std::vector<uint32_t> LayerSearch::counts_by_load(uint32_t least) {
  std::vector<uint32_t> counts(experts_, least);
  std::vector<std::pair<double, uint32_t>> heap;  // load per replica, -expert
  heap.reserve(experts_);
  for (uint32_t e = 0; e < experts_; ++e) heap.emplace_back(loads_[e] / counts[e], experts_ - e);
  std::ranges::make_heap(heap);
  const uint32_t more = request_.slots() - experts_ * least;
  for (uint32_t left = more; left > 0; --left) {
    std::ranges::pop_heap(heap);
    const uint32_t expert = experts_ - heap.back().second;
    heap.back().first = loads_[expert] / ++counts[expert];
    std::ranges::push_heap(heap);
  }
  probes_ += kProbesOfSorting * (int64_t{experts_} + more);
  return counts;
}

double LayerSearch::least_max_over_mean() {
  const std::vector<uint32_t> counts = counts_by_load(least_);
  std::vector<double> shares(experts_);
  for (uint32_t e = 0; e < experts_; ++e) shares[e] = loads_[e] / counts[e];
  std::ranges::sort(shares);
  double busiest = shares.back();
  // If no expert can have more replicas, the busiest rank by this holds others, too, each once.
  if (experts_ * least_ == request_.slots()) {
    for (uint32_t i = 0; i + 1 < request_.slots_per_rank; ++i) busiest += shares[i];
  }
  return std::max(busiest, 1.0);
}

void LayerSearch::clear() {
  for (auto& slots : slots_) slots.clear();
  for (auto& ranks : at_) ranks.clear();
  for (auto* counts :
       {&replicas_, &on_rank_, &in_domain_, &distinct_, &of_member_, &whole_members_}) {
    std::ranges::fill(*counts, 0u);
    probes_ += static_cast<int64_t>(counts->size() / kClearedPerProbe);
  }
  probes_ += int64_t{ranks_} + experts_;
  planned_loads_.assign(ranks_, 0);
  members_by_peak_.clear();
  for (uint32_t m = 0; m < family_.members.size(); ++m) members_by_peak_.emplace_back(0.0, m);
  domains_by_room_.clear();
  for (uint32_t domain = 0; domain < domains_; ++domain) {
    domains_by_room_.push_back({.less_room = -room_in(domain), .load = 0, .domain = domain});
  }
  std::ranges::make_heap(domains_by_room_, std::greater<>());
}

// Puts further replicas of a placed expert on the least loaded ranks without it. None if
// the `left` unplaced experts would not fit any more, or if the probes are
// used up.
void LayerSearch::assign_more(uint32_t expert, uint32_t more, uint32_t left, double share) {
  if (probes_ >= probes_max_) return;
  std::vector<std::pair<double, uint32_t>> lightest;
  lightest.reserve(ranks_);
  std::vector<uint32_t> room(domains_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    room[request_.domain(rank)] += request_.slots_per_rank - slots_[rank].size();
    if (!full(rank) && !holds(expert, rank)) lightest.emplace_back(planned_loads_[rank], rank);
  }
  probes_ += kProbesOfSorting * int64_t{ranks_};
  std::ranges::sort(lightest);
  const auto try_on = [&](std::span<const std::pair<double, uint32_t>> ranks) {
    for (const auto& [load, rank] : ranks) --room[request_.domain(rank)];
    probes_ += probes_of_fitting_;
    if (!fits(family_, room, left)) {
      for (const auto& [load, rank] : ranks) ++room[request_.domain(rank)];
      return false;
    }
    for (const auto& [load, rank] : ranks) {
      place(expert, rank);
      planned_loads_[rank] += share;
    }
    return true;
  };
  const std::span<const std::pair<double, uint32_t>> ranks(lightest);
  if (try_on(ranks.first(std::min<size_t>(more, ranks.size())))) return;
  for (size_t i = 0; i < ranks.size() && more > 0 && probes_ < probes_max_; ++i) {
    if (try_on(ranks.subspan(i, 1))) --more;
  }
}

bool LayerSearch::assign_all(std::span<const uint32_t> order, std::span<const uint32_t> counts,
                             bool all_replicas) {
  clear();
  uint32_t left = experts_;
  for (const bool free : {false, true}) {
    for (const uint32_t expert : order) {
      const bool may_be_free = counts[expert] >= family_.free_size || family_.members.empty();
      if (may_be_free != free) continue;
      const double share = loads_[expert] / counts[expert];
      if (free ? !assign_free(expert, share) : !assign_member(expert, share)) return false;
      --left;
      const auto has = replicas_[expert];
      if (!all_replicas || counts[expert] <= has) continue;
      assign_more(expert, counts[expert] - has, left, share);
    }
  }
  return true;
}

// Further replicas of every expert: the next one goes to the expert with most tokens per replica.
std::vector<uint32_t> LayerSearch::more_by_load() {
  std::vector<std::pair<double, uint32_t>> heap;  // load per replica, experts_ - expert
  heap.reserve(experts_);
  uint32_t left = request_.slots();
  for (uint32_t e = 0; e < experts_; ++e) {
    left -= replicas_[e];
    heap.emplace_back(share(e), experts_ - e);
  }
  std::ranges::make_heap(heap);
  probes_ += kProbesOfSorting * (int64_t{experts_} + left);
  std::vector<uint32_t> more(experts_);
  for (; left > 0; --left) {
    std::ranges::pop_heap(heap);
    const uint32_t expert = experts_ - heap.back().second;
    heap.back().first = loads_[expert] / (replicas_[expert] + ++more[expert]);
    std::ranges::push_heap(heap);
  }
  return more;
}

// The largest shares first, each on the least loaded rank that has room and lacks the expert.
void LayerSearch::fill() {
  const std::vector<uint32_t> more = more_by_load();
  std::vector<double> shares(experts_);
  std::vector<uint32_t> order(experts_);
  std::iota(order.begin(), order.end(), 0u);
  std::vector<std::pair<double, uint32_t>> lightest(ranks_);  // min-heap: -load, rank
  for (uint32_t rank = 0; rank < ranks_; ++rank) lightest[rank] = {0, rank};
  for (uint32_t e = 0; e < experts_; ++e) {
    shares[e] = loads_[e] / (replicas_[e] + more[e]);
    for (const uint32_t rank : at_[e]) lightest[rank].first -= held(e, rank) * shares[e];
  }
  std::erase_if(lightest, [&](const auto& one) { return full(one.second); });
  std::ranges::make_heap(lightest);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return shares[a] > shares[b]; });
  probes_ += kProbesOfSorting * (int64_t{ranks_} + experts_);
  std::vector<std::pair<double, uint32_t>> passed;
  for (const uint32_t expert : order) {
    for (uint32_t i = 0; i < more[expert] && !lightest.empty();) {
      std::ranges::pop_heap(lightest);
      auto [load, rank] = lightest.back();
      lightest.pop_back();
      probes_ += kProbesOfSorting;
      if (holds(expert, rank)) {
        passed.emplace_back(load, rank);
        continue;
      }
      place(expert, rank);
      ++i;
      if (full(rank)) continue;
      lightest.emplace_back(load - shares[expert], rank);
      std::ranges::push_heap(lightest);
    }
    for (const auto& one : passed) {
      lightest.push_back(one);
      std::ranges::push_heap(lightest);
    }
    passed.clear();
  }
  fill_rest();
}

// If all ranks with room hold the intended experts already: takes the expert with most tokens per
// replica, preferably one that is not on the rank yet.
void LayerSearch::fill_rest() {
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    while (!full(rank)) {
      uint32_t best = 0;
      probes_ += experts_;
      for (uint32_t expert = 1; expert < experts_; ++expert) {
        const bool here = holds(expert, rank);
        if (here != holds(best, rank) ? !here : share(expert) > share(best)) best = expert;
      }
      place(best, rank);
    }
  }
}

// Experts in descending order of the load of one replica.
std::vector<uint32_t> LayerSearch::by_share(std::span<const uint32_t> counts) const {
  std::vector<uint32_t> order(experts_);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return loads_[a] / counts[a] > loads_[b] / counts[b];
  });
  return order;
}

bool LayerSearch::build(Start start, int64_t work) {
  probes_max_ = work;
  std::vector<uint32_t> order(experts_);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return loads_[a] > loads_[b]; });
  const std::vector<uint32_t> counts = counts_by_load(request_.replicas_min);
  if (!assign_all(order, counts, false)) return false;
  if (start == Start::kAllReplicas) {
    // The slots left by the members are known now.
    std::vector<uint32_t> all = more_by_load();
    for (uint32_t e = 0; e < experts_; ++e) all[e] += replicas_[e];
    if (!assign_all(by_share(all), all, true)) assign_all(order, counts, false);
  }
  fill();
  add_loads_up();
  return true;
}

bool LayerSearch::rebuild(Start start, std::mt19937& random, int64_t work) {
  const std::vector<double> loads = loads_;
  for (double& load : loads_) {
    load *= kMisjudgedMin + (1 / kMisjudgedMin - kMisjudgedMin) * random() / random.max();
  }
  const bool built = build(start, work);
  loads_ = loads;
  add_loads_up();
  return built;
}

}  // namespace moetrain
