#include "trainer/simulate/groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

namespace moetrain::simulate {

void Cluster::add(uint32_t node) {
  there[node] = true;
  ++lives[node];
  list.insert(std::lower_bound(list.begin(), list.end(), node), node);
}

void Cluster::remove(uint32_t node) {
  there[node] = false;
  list.erase(std::lower_bound(list.begin(), list.end(), node));
}

bool whole(const Group& group, const Cluster& cluster) {
  return std::ranges::all_of(group.nodes, [&](const NodeLife& node) { return cluster.has(node); });
}

namespace {

// Experts held by every node, ascending; null for nodes in no group.
using Held = std::vector<const std::vector<uint32_t>*>;

Held held_now(const Groups& groups, const Cluster& cluster) {
  Held held(cluster.there.size(), nullptr);
  for (const Group& group : groups) {
    for (size_t at = 0; at < group.nodes.size(); ++at) {
      if (cluster.has(group.nodes[at])) held[group.nodes[at].node] = &group.plan->held[at];
    }
  }
  return held;
}

// Matches candidates to positions greedily. The pair with most experts in common is first, then the
// lower candidate, then the lower position; both leave the pool. Pairs are not stored:
// candidates with equal experts share a list of their best positions, which is rebuilt
// once all of them are taken. So memory grows with candidates plus positions, not their product.
class Matcher {
 public:
  Matcher(const Plan& plan, const std::vector<uint32_t>& candidates, const Held& held)
      : plan_(plan),
        candidates_(candidates),
        list_of_(candidates.size()),
        taken_(plan.nodes, kUnassigned),
        overlap_(plan.nodes) {
    std::map<std::vector<uint32_t>, size_t> lists;
    for (size_t c = 0; c < candidates.size(); ++c) {
      const std::vector<uint32_t>* mine = held[candidates[c]];
      const auto [at, added] = lists.try_emplace(mine == nullptr ? kNothing : *mine, lists.size());
      if (added) lists_.push_back({mine == nullptr ? &kNothing : mine, {}});
      list_of_[c] = at->second;
    }
  }

  // [position]: its candidate, each at most once.
  std::vector<uint32_t> run() {
    // Overlaps are upper bounds: positions are taken meanwhile.
    std::priority_queue<Turn> turns;
    for (uint32_t c = 0; c < candidates_.size(); ++c) turns.push({best(list_of_[c]).overlap, c});
    for (size_t left = taken_.size(); left > 0 && !turns.empty();) {
      const Turn turn = turns.top();
      turns.pop();
      const Choice choice = best(list_of_[turn.candidate]);
      if (choice.overlap < turn.overlap) {
        turns.push({choice.overlap, turn.candidate});
        continue;
      }
      taken_[choice.position] = candidates_[turn.candidate];
      --left;
    }
    return std::move(taken_);
  }

 private:
  static constexpr uint32_t kUnassigned = UINT32_MAX;
  static constexpr size_t kChoices = 32;  // of a list
  static inline const std::vector<uint32_t> kNothing;

  struct Choice {
    uint32_t overlap = 0;
    uint32_t position = 0;
    bool operator<(const Choice& other) const {  // the better one is less
      return std::tie(other.overlap, position) < std::tie(overlap, other.position);
    }
  };
  struct List {
    const std::vector<uint32_t>* held;
    std::vector<Choice> choices;  // the worst first; no better position is free
  };
  struct Turn {
    uint32_t overlap;
    uint32_t candidate;
    bool operator<(const Turn& other) const {
      return std::tie(overlap, other.candidate) < std::tie(other.overlap, candidate);
    }
  };

  // Precondition: some position is free.
  Choice best(size_t at) {
    List& list = lists_[at];
    while (!list.choices.empty() && taken_[list.choices.back().position] != kUnassigned) {
      list.choices.pop_back();
    }
    if (list.choices.empty()) choose(list);
    return list.choices.back();
  }

  void choose(List& list) {
    std::ranges::fill(overlap_, 0);
    for (const uint32_t expert : *list.held) {
      for (const uint32_t position : plan_.holders[expert]) ++overlap_[position];
    }
    std::vector<Choice> free;
    free.reserve(overlap_.size());
    for (uint32_t position = 0; position < overlap_.size(); ++position) {
      if (taken_[position] == kUnassigned) free.push_back({overlap_[position], position});
    }
    list.choices.resize(std::min(free.size(), kChoices));
    std::partial_sort_copy(free.begin(), free.end(), list.choices.rbegin(), list.choices.rend());
  }

  const Plan& plan_;
  const std::vector<uint32_t>& candidates_;
  std::vector<List> lists_;
  std::vector<size_t> list_of_;  // [candidate]
  std::vector<uint32_t> taken_;  // [position]: its candidate
  std::vector<uint32_t> overlap_;
};

double bytes_to_get(const CostModel& model, const Plan& plan, uint32_t position,
                    const std::vector<uint32_t>* held) {
  const std::vector<uint32_t>& needed = plan.held[position];
  if (held == nullptr) {
    return model.dense_bytes() + static_cast<double>(needed.size()) * model.expert_bytes();
  }
  if (held == &needed) return 0;
  size_t missing = 0;
  auto at = held->begin();
  for (const uint32_t expert : needed) {
    at = std::lower_bound(at, held->end(), expert);
    missing += at == held->end() || *at != expert ? 1 : 0;
  }
  return static_cast<double>(missing) * model.expert_bytes();
}

// The nodes offered to each group: its own, then, if these are too few, nodes
// that no other group needs.
std::vector<std::vector<uint32_t>> offer(const Groups& groups, const Plans& wanted,
                                         const Cluster& cluster) {
  std::vector<std::vector<uint32_t>> offered(wanted.size());
  std::vector<bool> placed(cluster.there.size(), false);
  for (size_t g = 0; g < std::min(groups.size(), offered.size()); ++g) {
    for (const NodeLife& node : groups[g].nodes) {
      if (!cluster.has(node) || offered[g].size() == wanted[g]->nodes) continue;
      offered[g].push_back(node.node);
      placed[node.node] = true;
    }
  }
  auto next = cluster.list.begin();
  for (size_t g = 0; g < offered.size(); ++g) {
    for (; offered[g].size() < wanted[g]->nodes && next != cluster.list.end(); ++next) {
      if (!placed[*next]) offered[g].push_back(*next);
    }
  }
  return offered;
}

}  // namespace

bool any_alive(const Groups& groups, const Cluster& cluster) {
  return std::ranges::any_of(groups, [&](const Group& group) {
    return std::ranges::any_of(group.nodes, [&](const NodeLife& one) { return cluster.has(one); });
  });
}

std::vector<uint32_t> lost_experts(const Groups& groups, const Cluster& cluster) {
  if (std::ranges::any_of(groups, [&](const Group& group) { return whole(group, cluster); })) {
    return {};
  }
  std::vector<uint32_t> lost;
  const size_t experts = groups.empty() ? 0 : groups.front().plan->holders.size();
  for (size_t expert = 0; expert < experts; ++expert) {
    const bool alive = std::ranges::any_of(groups, [&](const Group& group) {
      return std::ranges::any_of(group.plan->holders[expert], [&](uint32_t position) {
        return cluster.has(group.nodes[position]);
      });
    });
    if (!alive) lost.push_back(static_cast<uint32_t>(expert));
  }
  return lost;
}

Regrouped regroup(const CostModel& model, const Groups& groups, const Plans& wanted,
                  const Cluster& cluster) {
  Regrouped result;
  result.member.assign(cluster.there.size(), false);
  const Held held = held_now(groups, cluster);
  const auto offered = offer(groups, wanted, cluster);
  for (size_t g = 0; g < wanted.size(); ++g) {
    Group group{.nodes = {}, .plan = wanted[g]};
    if (g < groups.size() && groups[g].plan == group.plan && whole(groups[g], cluster)) {
      group.nodes = groups[g].nodes;  // unchanged
    } else {
      const std::vector<uint32_t> nodes = Matcher(*group.plan, offered[g], held).run();
      group.nodes.reserve(nodes.size());
      for (uint32_t position = 0; position < nodes.size(); ++position) {
        group.nodes.push_back({nodes[position], cluster.lives[nodes[position]]});
        result.moved_bytes = std::max(
            result.moved_bytes, bytes_to_get(model, *group.plan, position, held[nodes[position]]));
      }
    }
    for (const NodeLife& node : group.nodes) result.member[node.node] = true;
    result.groups.push_back(std::move(group));
  }
  return result;
}

std::vector<uint32_t> elastic_sizes(const Groups& groups, const Cluster& cluster,
                                    uint32_t group_nodes, uint32_t nodes_min) {
  const auto total = static_cast<uint32_t>(cluster.list.size());
  if (group_nodes == 0 || total < 2 * std::max(nodes_min, 1U)) return {total};
  std::vector<uint32_t> sizes;
  uint32_t given = 0;
  for (const Group& group : groups) {
    const auto alive = static_cast<uint32_t>(std::ranges::count_if(
        group.nodes, [&](const NodeLife& node) { return cluster.has(node); }));
    sizes.push_back(alive);
    given += alive;
  }
  // Regroups if there are no groups, or one has become too small, or all would be too large.
  const uint32_t count = std::clamp((total + group_nodes - 1) / group_nodes, 1U, total / nodes_min);
  const bool small = std::ranges::any_of(sizes, [&](uint32_t size) { return size < nodes_min; });
  if (sizes.empty() || small || sizes.size() > count) {
    sizes.assign(count, total / count);
    for (uint32_t g = 0; g < total % count; ++g) ++sizes[g];
    return sizes;
  }
  for (; sizes.size() < count && total - given >= nodes_min; given += nodes_min) {
    sizes.push_back(nodes_min);
  }
  for (; given < total; ++given) ++*std::ranges::min_element(sizes);
  return sizes;
}

}  // namespace moetrain::simulate
