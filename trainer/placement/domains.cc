#include "trainer/placement/domains.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace moetrain {

namespace {

// If every rank is a domain, the list stays empty.
RankGroup group_of_nodes(std::span<const int64_t> node_of_rank) {
  RankGroup group(static_cast<uint32_t>(node_of_rank.size()), number_domains(node_of_rank));
  if (group.domains() == group.ranks) group.domain_of_rank.clear();
  return group;
}

}  // namespace

uint32_t RankGroup::domains() const {
  return domain_of_rank.empty() ? ranks : std::ranges::max(domain_of_rank) + 1;
}

uint32_t RankGroup::domains_among(std::span<const uint32_t> of_ranks) const {
  std::set<uint32_t> distinct;
  for (const uint32_t rank : of_ranks) distinct.insert(domain(rank));
  return static_cast<uint32_t>(distinct.size());
}

RankGroup RankGroup::only(const std::vector<bool>& stays) const {
  std::vector<int64_t> nodes;
  nodes.reserve(stays.size());
  for (uint32_t rank = 0; rank < stays.size(); ++rank) {
    if (stays[rank]) nodes.push_back(domain(rank));
  }
  return group_of_nodes(nodes);
}

std::vector<uint32_t> number_domains(std::span<const int64_t> node_of_rank) {
  std::map<int64_t, uint32_t> domains;
  std::vector<uint32_t> domain_of_rank;
  domain_of_rank.reserve(node_of_rank.size());
  for (const int64_t node : node_of_rank) {
    const auto next = static_cast<uint32_t>(domains.size());
    domain_of_rank.push_back(domains.try_emplace(node, next).first->second);
  }
  return domain_of_rank;
}

RankGroup group_of(std::span<const uint64_t> processes, const NodeOfProcess& nodes) {
  std::vector<int64_t> node_of_rank;
  node_of_rank.reserve(processes.size());
  for (const uint64_t process : processes) {
    const int64_t node = process < nodes.size() ? nodes[process] : kOwnNode;
    // Negative numbers are not used by nodes of the file.
    node_of_rank.push_back(node != kOwnNode ? node : -1 - static_cast<int64_t>(process));
  }
  return group_of_nodes(node_of_rank);
}

RankGroup first_group(uint32_t ranks, const NodeOfProcess& nodes) {
  std::vector<uint64_t> processes(ranks);
  std::iota(processes.begin(), processes.end(), uint64_t{0});
  return group_of(processes, nodes);
}

std::vector<uint32_t> routing_nodes(const RankGroup& group, const NodeOfProcess& nodes) {
  std::vector<uint32_t> node_of_rank;
  if (nodes.empty()) return node_of_rank;
  node_of_rank.reserve(group.ranks);
  for (uint32_t rank = 0; rank < group.ranks; ++rank) node_of_rank.push_back(group.domain(rank));
  return node_of_rank;
}

}  // namespace moetrain
