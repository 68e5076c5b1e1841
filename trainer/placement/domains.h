// Failure domains: which ranks of a group die together, because they are on one node. Values; pure.
//
// Ranks are numbered anew whenever the group changes, processes never are. So what is known is the
// node of each process, and the domains of a group follow from it and from who is in the group.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace moetrain {

// [process]: the number of its node. kOwnNode, as for processes beyond the end: nobody has said
// where it is, and it counts as a node by itself.
using NodeOfProcess = std::vector<int32_t>;
inline constexpr int32_t kOwnNode = -1;

// The ranks of a group that a placement is for.
struct RankGroup {
  uint32_t ranks = 0;
  // [rank]: its domain, 0 .. D - 1 in the order of ranks, every one of them used. Empty: every rank
  // is one.
  std::vector<uint32_t> domain_of_rank;

  // NOLINTNEXTLINE(google-explicit-constructor): a number of ranks is a group that dies one by one.
  RankGroup(uint32_t rank_count = 0, std::vector<uint32_t> domains = {})
      : ranks(rank_count), domain_of_rank(std::move(domains)) {}

  uint32_t domains() const;
  uint32_t domain(uint32_t rank) const {
    return domain_of_rank.empty() ? rank : domain_of_rank[rank];
  }
  // How many distinct domains these ranks are in.
  uint32_t domains_among(std::span<const uint32_t> of_ranks) const;
  // The group of those only that are `stays`, in their order.
  RankGroup only(const std::vector<bool>& stays) const;
  bool operator==(const RankGroup&) const = default;
};

// Domains for nodes by any numbers, alike for ranks of one node: 0 .. D - 1 in the order of ranks.
std::vector<uint32_t> number_domains(std::span<const int64_t> node_of_rank);

// The group whose ranks are these processes, in this order, each of them once.
RankGroup group_of(std::span<const uint64_t> processes, const NodeOfProcess& nodes);
// Of processes 0 .. ranks - 1, as a run begins.
RankGroup first_group(uint32_t ranks, const NodeOfProcess& nodes);

// [rank]: its node, for lite routing (token_shares.h): that of group.domain(rank). Empty, which
// stands for one node, where the node of no process is known: ranks without `nodes` fail one by
// one, but nothing says that they are far from each other.
std::vector<uint32_t> routing_nodes(const RankGroup& group, const NodeOfProcess& nodes);

}  // namespace moetrain
