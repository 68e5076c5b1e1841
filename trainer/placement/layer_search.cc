#include "trainer/placement/layer_search.h"

#include <algorithm>
#include <numeric>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

constexpr int64_t kProbesOfPlacing = 4;
constexpr int64_t kCountsPerProbe = 8;  // where they are made
constexpr int64_t kRoomsPerProbe = 2;   // where fits() goes over them

}  // namespace

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
      replicas_(experts_),
      shares_(experts_),
      on_rank_(size_t{experts_} * ranks_),
      in_domain_(size_t{experts_} * domains_),
      distinct_(experts_),
      members_of_domain_(domains_),
      of_member_(experts_ * family.members.size()),
      whole_members_(experts_),
      rank_loads_(ranks_),
      ranks_of_domain_(domains_),
      relief_(experts_),
      burden_(experts_) {
  const double total = std::accumulate(loads_.begin(), loads_.end(), 0.0);
  for (double& load : loads_) load *= ranks_ / total;
  for (uint32_t m = 0; m < family.members.size(); ++m) {
    for (const uint32_t domain : family.members[m]) members_of_domain_[domain].push_back(m);
  }
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    ranks_of_domain_[request.domain(rank)].push_back(rank);
    slots_[rank].reserve(request.slots_per_rank);
  }
  int64_t in_members = 0;
  least_ = family.free_size;
  for (const auto& member : family.members) {
    in_members += static_cast<int64_t>(member.size());
    least_ = std::min(least_, static_cast<uint32_t>(member.size()));
  }
  probes_of_fitting_ = domains_ / kCountsPerProbe + in_members / kRoomsPerProbe + 1;
  const auto counts = static_cast<int64_t>(on_rank_.size() + in_domain_.size() + of_member_.size());
  probes_ = counts / kCountsPerProbe + int64_t{experts_} + ranks_ + domains_ + in_members;
}

void LayerSearch::place(uint32_t expert, uint32_t rank) {
  probes_ += kProbesOfPlacing;
  slots_[rank].push_back(expert);
  shares_[expert] = loads_[expert] / ++replicas_[expert];
  if (on_rank_[size_t{expert} * ranks_ + rank]++ == 0) at_[expert].push_back(rank);
  const uint32_t domain = request_.domain(rank);
  if (in_domain_[size_t{expert} * domains_ + domain]++ > 0) return;
  ++distinct_[expert];
  probes_ += static_cast<int64_t>(members_of_domain_[domain].size());
  for (const uint32_t m : members_of_domain_[domain]) {
    const auto size = static_cast<uint32_t>(family_.members[m].size());
    if (++of_member_[expert * family_.members.size() + m] == size) ++whole_members_[expert];
  }
}

void LayerSearch::put(uint32_t expert, uint32_t rank) {
  const double before = share(expert);
  place(expert, rank);
  share_changed(expert, before);
  rank_loads_[rank] += before;
}

void LayerSearch::take(uint32_t expert, uint32_t rank) {
  const double before = share(expert);
  slots_[rank].erase(std::ranges::find(slots_[rank], expert));
  shares_[expert] = loads_[expert] / --replicas_[expert];
  if (--on_rank_[size_t{expert} * ranks_ + rank] == 0) {
    at_[expert].erase(std::ranges::find(at_[expert], rank));
  }
  share_changed(expert, before);
  rank_loads_[rank] -= before;
  const uint32_t domain = request_.domain(rank);
  if (--in_domain_[size_t{expert} * domains_ + domain] > 0) return;
  --distinct_[expert];
  for (const uint32_t m : members_of_domain_[domain]) {
    const auto size = static_cast<uint32_t>(family_.members[m].size());
    if (of_member_[expert * family_.members.size() + m]-- == size) --whole_members_[expert];
  }
}

void LayerSearch::share_changed(uint32_t expert, double before) {
  probes_ += static_cast<int64_t>(at_[expert].size());
  for (const uint32_t rank : at_[expert]) {
    rank_loads_[rank] += held(expert, rank) * (share(expert) - before);
  }
}

// After many place() calls: adds up all loads once, instead of once per put().
void LayerSearch::add_loads_up() {
  std::ranges::fill(rank_loads_, 0.0);
  probes_ += int64_t{experts_} + request_.slots();
  for (uint32_t expert = 0; expert < experts_; ++expert) {
    shares_[expert] = loads_[expert] / replicas_[expert];
    for (const uint32_t rank : at_[expert]) {
      rank_loads_[rank] += held(expert, rank) * share(expert);
    }
  }
}

bool LayerSearch::within_family(uint32_t expert) const {
  return whole_members_[expert] > 0 || distinct_[expert] >= family_.free_size;
}

bool LayerSearch::may_leave(uint32_t expert, uint32_t leaves, uint32_t gets) {
  const uint32_t from = request_.domain(leaves);
  const uint32_t to = gets == kNoRank ? kNoRank : request_.domain(gets);
  const uint32_t* domains = in_domain_.data() + size_t{expert} * domains_;
  if (domains[from] > 1 || from == to) return true;
  const bool gains = to != kNoRank && domains[to] == 0;
  const uint32_t distinct = distinct_[expert] - 1 + (gains ? 1 : 0);
  if (distinct < request_.replicas_min) return false;
  if (distinct >= family_.free_size) return true;
  // Null if the family has no members.
  const uint32_t* of_member = of_member_.data() + expert * family_.members.size();
  probes_ += static_cast<int64_t>(members_of_domain_[from].size());
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
