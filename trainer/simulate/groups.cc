#include "trainer/simulate/groups.h"

#include <algorithm>
#include <iterator>
#include <numeric>
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

// What every node holds now: experts, ascending; nothing of those that are in no group.
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

struct Match {
  uint32_t overlap, candidate, position;
};

// [position]: which of the candidates, each at most once.
std::vector<uint32_t> match(const Plan& plan, const std::vector<uint32_t>& candidates,
                            const Held& held) {
  const size_t positions = plan.nodes;
  std::vector<uint32_t> overlap(candidates.size() * positions, 0);
  for (size_t c = 0; c < candidates.size(); ++c) {
    if (held[candidates[c]] == nullptr) continue;
    for (const uint32_t expert : *held[candidates[c]]) {
      for (const uint32_t position : plan.holders[expert]) ++overlap[c * positions + position];
    }
  }
  std::vector<Match> matches;
  matches.reserve(overlap.size());
  for (uint32_t c = 0; c < candidates.size(); ++c) {
    for (uint32_t p = 0; p < positions; ++p) matches.push_back({overlap[c * positions + p], c, p});
  }
  std::ranges::sort(matches, [](const Match& a, const Match& b) {
    return std::tie(b.overlap, a.candidate, a.position) <
           std::tie(a.overlap, b.candidate, b.position);
  });
  constexpr uint32_t kNobody = UINT32_MAX;
  std::vector<uint32_t> taken(positions, kNobody);
  std::vector<bool> used(candidates.size(), false);
  for (const Match& one : matches) {
    if (used[one.candidate] || taken[one.position] != kNobody) continue;
    used[one.candidate] = true;
    taken[one.position] = candidates[one.candidate];
  }
  return taken;
}

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

// The nodes that are offered to each group: those that it has, then, where these are too few, those
// that nobody else needs.
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
      group.nodes = groups[g].nodes;  // nothing changed for it
    } else {
      const std::vector<uint32_t> nodes = match(*group.plan, offered[g], held);
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
  // Begun anew if there are no groups, or one has become too small, or all would be too large.
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
