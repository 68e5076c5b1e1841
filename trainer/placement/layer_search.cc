#include "trainer/placement/layer_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "formats/base/assert.h"

namespace moetrain {

LayerSearch::LayerSearch(const PlacementRequest& request, const Family& family,
                         std::span<const double> loads)
    : request_(request),
      family_(family),
      ranks_(request.ranks),
      domains_(request.domains()),
      experts_(request.experts()),
      loads_(loads.begin(), loads.begin() + experts_),
      slots_(ranks_),
      at_(experts_),
      on_rank_(size_t{experts_} * ranks_),
      in_domain_(size_t{experts_} * domains_),
      distinct_(experts_),
      members_of_domain_(domains_),
      of_member_(experts_ * family.members.size()),
      whole_members_(experts_),
      rank_loads_(ranks_),
      ranks_of_domain_(domains_),
      shift_(ranks_) {
  const double total = std::accumulate(loads_.begin(), loads_.end(), 0.0);
  for (double& load : loads_) load *= ranks_ / total;
  for (uint32_t m = 0; m < family.members.size(); ++m) {
    for (const uint32_t domain : family.members[m]) members_of_domain_[domain].push_back(m);
  }
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    ranks_of_domain_[request.domain(rank)].push_back(rank);
    slots_[rank].reserve(request.slots_per_rank);
  }
}

void LayerSearch::place(uint32_t expert, uint32_t rank) {
  at_[expert].push_back(rank);
  slots_[rank].push_back(expert);
  ++on_rank_[size_t{expert} * ranks_ + rank];
  const uint32_t domain = request_.domain(rank);
  if (in_domain_[size_t{expert} * domains_ + domain]++ > 0) return;
  ++distinct_[expert];
  for (const uint32_t m : members_of_domain_[domain]) {
    const auto size = static_cast<uint32_t>(family_.members[m].size());
    if (++of_member_[expert * family_.members.size() + m] == size) ++whole_members_[expert];
  }
}

void LayerSearch::put(uint32_t expert, uint32_t rank) {
  const double before = at_[expert].empty() ? 0 : share(expert);
  const double now = loads_[expert] / (replicas_of(expert) + 1);
  for (const uint32_t other : at_[expert]) rank_loads_[other] += now - before;
  rank_loads_[rank] += now;
  place(expert, rank);
}

void LayerSearch::take(uint32_t expert, uint32_t rank) {
  const double before = share(expert);
  at_[expert].erase(std::ranges::find(at_[expert], rank));
  slots_[rank].erase(std::ranges::find(slots_[rank], expert));
  --on_rank_[size_t{expert} * ranks_ + rank];
  rank_loads_[rank] -= before;
  for (const uint32_t other : at_[expert]) rank_loads_[other] += share(expert) - before;
  const uint32_t domain = request_.domain(rank);
  if (--in_domain_[size_t{expert} * domains_ + domain] > 0) return;
  --distinct_[expert];
  for (const uint32_t m : members_of_domain_[domain]) {
    const auto size = static_cast<uint32_t>(family_.members[m].size());
    if (of_member_[expert * family_.members.size() + m]-- == size) --whole_members_[expert];
  }
}

// After many were placed: once, where put() would go over all replicas of an expert each time.
void LayerSearch::add_loads_up() {
  std::ranges::fill(rank_loads_, 0.0);
  for (uint32_t expert = 0; expert < experts_; ++expert) {
    for (const uint32_t rank : at_[expert]) rank_loads_[rank] += share(expert);
  }
}

bool LayerSearch::within_family(uint32_t expert) const {
  return whole_members_[expert] > 0 || distinct_[expert] >= family_.free_size;
}

bool LayerSearch::may_leave(uint32_t expert, uint32_t leaves, uint32_t gets) const {
  const uint32_t from = request_.domain(leaves);
  const uint32_t to = gets == kNobody ? kNobody : request_.domain(gets);
  const uint32_t* domains = in_domain_.data() + size_t{expert} * domains_;
  if (domains[from] > 1 || from == to) return true;
  const bool gains = to != kNobody && domains[to] == 0;
  const uint32_t distinct = distinct_[expert] - 1 + (gains ? 1 : 0);
  if (distinct < request_.replicas_min) return false;
  if (distinct >= family_.free_size) return true;
  // None where the family has no members.
  const uint32_t* of_member = of_member_.data() + expert * family_.members.size();
  uint32_t whole = whole_members_[expert];
  for (const uint32_t m : members_of_domain_[from]) {
    if (of_member[m] == family_.members[m].size()) --whole;
  }
  if (whole > 0) return true;
  if (!gains) return false;
  return std::ranges::any_of(members_of_domain_[to], [&](uint32_t m) {
    const std::vector<uint32_t>& member = family_.members[m];
    return of_member[m] + 1u == member.size() && !std::ranges::binary_search(member, from);
  });
}

uint32_t LayerSearch::lightest_in(uint32_t domain, uint32_t expert) const {
  uint32_t best = kNobody;
  for (const uint32_t rank : ranks_of_domain_[domain]) {
    if (full(rank) || holds(expert, rank)) continue;
    if (best == kNobody || planned_loads_[rank] < planned_loads_[best]) best = rank;
  }
  return best;
}

void LayerSearch::plan_put(uint32_t expert, uint32_t domain, double share) {
  const uint32_t rank = lightest_in(domain, expert);
  place(expert, rank);
  planned_loads_[rank] += share;
}

// On the member whose ranks come out least loaded.
bool LayerSearch::assign_member(uint32_t expert, double share) {
  const std::vector<uint32_t>* best = nullptr;
  double best_peak = 0;
  for (const std::vector<uint32_t>& member : family_.members) {
    double peak = 0;
    for (const uint32_t domain : member) {
      const uint32_t rank = lightest_in(domain, expert);
      peak = rank == kNobody ? HUGE_VAL : std::max(peak, planned_loads_[rank] + share);
    }
    if (peak == HUGE_VAL || (best != nullptr && peak >= best_peak)) continue;
    best = &member;
    best_peak = peak;
  }
  if (best == nullptr) return false;
  for (const uint32_t domain : *best) plan_put(expert, domain, share);
  return true;
}

// On the domains with most room, of those the least loaded: room first, so that domains of
// different sizes do not run out of it before every expert has had enough of them.
bool LayerSearch::assign_free(uint32_t expert, double share) {
  struct Choice {
    size_t room;
    double load;
    uint32_t domain;
  };
  std::vector<Choice> choices;
  choices.reserve(domains_);
  for (uint32_t domain = 0; domain < domains_; ++domain) {
    size_t room = 0;
    for (const uint32_t rank : ranks_of_domain_[domain]) {
      room += request_.slots_per_rank - slots_[rank].size();
    }
    if (room == 0) continue;
    choices.push_back({room, planned_loads_[lightest_in(domain, expert)], domain});
  }
  if (choices.size() < family_.free_size) return false;
  std::ranges::partial_sort(
      choices, choices.begin() + family_.free_size, [](const Choice& a, const Choice& b) {
        return std::tuple(b.room, a.load, a.domain) < std::tuple(a.room, b.load, b.domain);
      });
  for (uint32_t i = 0; i < family_.free_size; ++i) plan_put(expert, choices[i].domain, share);
  return true;
}

// Replicas by load alone: the next one goes to who has most tokens for each.
std::vector<uint32_t> LayerSearch::counts_by_load() const {
  std::vector<uint32_t> counts(experts_, request_.replicas_min);
  std::vector<std::pair<double, uint32_t>> heap;  // load per replica, -expert
  heap.reserve(experts_);
  for (uint32_t e = 0; e < experts_; ++e) heap.emplace_back(loads_[e] / counts[e], experts_ - e);
  std::ranges::make_heap(heap);
  for (uint32_t left = request_.slots() - experts_ * request_.replicas_min; left > 0; --left) {
    std::ranges::pop_heap(heap);
    const uint32_t expert = experts_ - heap.back().second;
    heap.back().first = loads_[expert] / ++counts[expert];
    std::ranges::push_heap(heap);
  }
  return counts;
}

void LayerSearch::clear() {
  for (auto& slots : slots_) slots.clear();
  for (auto& ranks : at_) ranks.clear();
  for (auto* counts : {&on_rank_, &in_domain_, &distinct_, &of_member_, &whole_members_}) {
    std::ranges::fill(*counts, 0u);
  }
  planned_loads_.assign(ranks_, 0);
}

bool LayerSearch::assign_all(std::span<const uint32_t> order, std::span<const uint32_t> counts) {
  clear();
  for (const bool free : {false, true}) {
    for (const uint32_t expert : order) {
      const bool may_be_free = counts[expert] >= family_.free_size || family_.members.empty();
      if (may_be_free != free) continue;
      const double share = loads_[expert] / counts[expert];
      if (free ? !assign_free(expert, share) : !assign_member(expert, share)) return false;
    }
  }
  return true;
}

// How many more replicas everybody gets: the next one goes to who has most tokens for each.
std::vector<uint32_t> LayerSearch::more_by_load() const {
  std::vector<std::pair<double, uint32_t>> heap;  // load per replica, experts_ - expert
  heap.reserve(experts_);
  uint32_t left = request_.slots();
  for (uint32_t e = 0; e < experts_; ++e) {
    left -= static_cast<uint32_t>(at_[e].size());
    heap.emplace_back(share(e), experts_ - e);
  }
  std::ranges::make_heap(heap);
  std::vector<uint32_t> more(experts_);
  for (; left > 0; --left) {
    std::ranges::pop_heap(heap);
    const uint32_t expert = experts_ - heap.back().second;
    heap.back().first = loads_[expert] / (replicas_of(expert) + ++more[expert]);
    std::ranges::push_heap(heap);
  }
  return more;
}

// The largest shares first, each on the least loaded rank that has room and does not hold it.
void LayerSearch::fill() {
  const std::vector<uint32_t> more = more_by_load();
  std::vector<double> shares(experts_);
  std::vector<uint32_t> order(experts_);
  std::iota(order.begin(), order.end(), 0u);
  std::vector<std::pair<double, uint32_t>> lightest(ranks_);  // a heap: -load, rank
  for (uint32_t rank = 0; rank < ranks_; ++rank) lightest[rank] = {0, rank};
  for (uint32_t e = 0; e < experts_; ++e) {
    shares[e] = loads_[e] / (replicas_of(e) + more[e]);
    for (const uint32_t rank : at_[e]) lightest[rank].first -= shares[e];
  }
  std::erase_if(lightest, [&](const auto& one) { return full(one.second); });
  std::ranges::make_heap(lightest);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return shares[a] > shares[b]; });
  std::vector<std::pair<double, uint32_t>> passed;
  for (const uint32_t expert : order) {
    for (uint32_t i = 0; i < more[expert] && !lightest.empty();) {
      std::ranges::pop_heap(lightest);
      auto [load, rank] = lightest.back();
      lightest.pop_back();
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

// Where all ranks with room hold what they should have got: whoever has most tokens for each of its
// replicas, somebody who is not there yet if possible.
void LayerSearch::fill_rest() {
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    while (!full(rank)) {
      uint32_t best = 0;
      for (uint32_t expert = 1; expert < experts_; ++expert) {
        const bool here = holds(expert, rank);
        if (here != holds(best, rank) ? !here : share(expert) > share(best)) best = expert;
      }
      place(best, rank);
    }
  }
}

bool LayerSearch::build() {
  const std::vector<uint32_t> counts = counts_by_load();
  std::vector<uint32_t> order(experts_);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return loads_[a] > loads_[b]; });
  if (!assign_all(order, counts)) return false;
  fill();
  add_loads_up();
  return true;
}

bool LayerSearch::adopt(const LayerSlots& slots) {
  clear();
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    for (const uint32_t expert : slots[rank]) place(expert, rank);
  }
  add_loads_up();
  for (uint32_t expert = 0; expert < experts_; ++expert) {
    if (!within_family(expert) || distinct_[expert] < request_.replicas_min) return false;
  }
  return true;
}

double LayerSearch::max_over_mean() const { return std::ranges::max(rank_loads_); }

}  // namespace moetrain
