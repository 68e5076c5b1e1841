// Failure domains: the ranks of a group that fail together, because they are on one node. Pure.
//
// Ranks are renumbered whenever the group changes, processes never are. So the node is stored per
// process, and a group's domains follow from the nodes of its members.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace moetrain {

// [process]: the number of its node. kOwnNode, as for processes beyond the end: unknown node; the
// process counts as a node by itself.
using NodeOfProcess = std::vector<int32_t>;
inline constexpr int32_t kOwnNode = -1;

// The group of ranks to place experts on.
struct RankGroup {
  uint32_t ranks = 0;
  // [rank]: its domain, 0 .. D - 1 in the order of ranks, all of them used. Empty: every rank is a
  // domain.
  std::vector<uint32_t> domain_of_rank;

  // NOLINTNEXTLINE(google-explicit-constructor): a number of ranks means one domain for each.
  RankGroup(uint32_t rank_count = 0, std::vector<uint32_t> domains = {})
      : ranks(rank_count), domain_of_rank(std::move(domains)) {}

  uint32_t domains() const;
  uint32_t domain(uint32_t rank) const {
    return domain_of_rank.empty() ? rank : domain_of_rank[rank];
  }
  // Number of distinct domains of these ranks.
  uint32_t domains_among(std::span<const uint32_t> of_ranks) const;
  // The group of only the ranks with `stays`, in their order.
  RankGroup only(const std::vector<bool>& stays) const;
  bool operator==(const RankGroup&) const = default;
};

// Domains from node numbers, equal for ranks of one node: 0 .. D - 1 in the order of ranks.
std::vector<uint32_t> number_domains(std::span<const int64_t> node_of_rank);

// The group whose ranks are these processes, in this order, each of them once.
RankGroup group_of(std::span<const uint64_t> processes, const NodeOfProcess& nodes);
// The initial group of a run: processes 0 .. ranks - 1.
RankGroup first_group(uint32_t ranks, const NodeOfProcess& nodes);

// [rank]: its node, for lite routing (token_shares.h): that of group.domain(rank). Empty, for one
// node, if no process's node is known: ranks without `nodes` fail one by
// one, but are not known to be far from each other.
std::vector<uint32_t> routing_nodes(const RankGroup& group, const NodeOfProcess& nodes);

}  // namespace moetrain
