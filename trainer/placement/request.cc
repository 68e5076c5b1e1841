// Derived values of placement requests, and their validation.
#include <algorithm>
#include <numeric>

#include "trainer/placement/policy.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;

namespace {

template <typename... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInvalidArgument,
               "placement: " + fmt::format(format, std::forward<Args>(args)...)};
}

Status check_sizes(const PlacementRequest& request) {
  if (request.ranks == 0 || request.ranks > kPlacementRanksMax) {
    return refuse("{} ranks; 1 to {}", request.ranks, kPlacementRanksMax);
  }
  if (request.slots_per_rank == 0 || request.slots_per_rank > kPlacementSlotsMax / request.ranks) {
    return refuse("{} slots on each of {} ranks; at least 1 each, at most {} in all",
                  request.slots_per_rank, request.ranks, kPlacementSlotsMax);
  }
  if (request.replicas_min == 0) return refuse("at least 0 replicas: at least 1 is needed");
  if (request.nodes == 0 || request.ranks % request.nodes != 0) {
    return refuse("{} nodes do not divide {} ranks", request.nodes, request.ranks);
  }
  return {};
}

Status check_loads(const PlacementRequest& request) {
  if (request.loads.empty()) return refuse("loads of no layer");
  const uint32_t experts = request.experts();
  if (experts == 0 || experts > kPlacementExpertsMax) {
    return refuse("{} experts; 1 to {}", request.loads.front().size(), kPlacementExpertsMax);
  }
  if (uint64_t{experts} * request.ranks > kPlacementHoldersMax) {
    return refuse("{} experts on {} ranks; at most {} times one another", experts, request.ranks,
                  kPlacementHoldersMax);
  }
  for (size_t layer = 0; layer < request.loads.size(); ++layer) {
    const std::vector<uint64_t>& loads = request.loads[layer];
    if (loads.size() != experts) {
      return refuse("layer {} has loads of {} experts, layer 0 of {}", layer, loads.size(),
                    experts);
    }
    uint64_t left = kPlacementTokensMax;
    for (const uint64_t load : loads) {
      if (load > left)
        return refuse("layer {} has more than {} tokens", layer, kPlacementTokensMax);
      left -= load;
    }
  }
  if (request.expert_groups == 0 || experts % request.expert_groups != 0) {
    return refuse("{} expert groups do not divide {} experts", request.expert_groups, experts);
  }
  return {};
}

Status check_domains(const PlacementRequest& request) {
  if (request.domain_of_rank.empty()) return {};
  if (request.domain_of_rank.size() != request.ranks) {
    return refuse("domains of {} ranks, there are {}", request.domain_of_rank.size(),
                  request.ranks);
  }
  std::vector<bool> used(request.ranks);
  for (uint32_t rank = 0; rank < request.ranks; ++rank) {
    if (request.domain_of_rank[rank] >= request.ranks) {
      return refuse("rank {} is in domain {} of {} ranks", rank, request.domain_of_rank[rank],
                    request.ranks);
    }
    used[request.domain_of_rank[rank]] = true;
  }
  for (uint32_t domain = 0; domain < request.domains(); ++domain) {
    if (!used[domain]) return refuse("no rank is in domain {}", domain);
  }
  return {};
}

Status check_current(const PlacementRequest& request) {
  if (request.current.empty()) return {};
  if (request.current.size() != request.loads.size()) {
    return refuse("the current placement has {} layers, the loads have {}", request.current.size(),
                  request.loads.size());
  }
  for (size_t layer = 0; layer < request.current.size(); ++layer) {
    if (request.current[layer].size() != request.ranks) {
      return refuse("the current placement of layer {} has {} ranks, not {}", layer,
                    request.current[layer].size(), request.ranks);
    }
    for (const auto& rank : request.current[layer]) {
      for (const uint32_t expert : rank) {
        if (expert >= request.experts()) {
          return refuse("the current placement of layer {} has expert {} of {}", layer, expert,
                        request.experts());
        }
      }
    }
  }
  return {};
}

Status check_failures(const PlacementRequest& request) {
  if (request.failures > 0 && request.failures >= request.domains()) {
    return refuse("{} failures of {} failure domains: nobody would be left", request.failures,
                  request.domains());
  }
  for (const RecoveryWanted& wanted : request.recovery_wanted) {
    if (wanted.failures == 0 || wanted.failures >= request.domains()) {
      return refuse("a recovery wanted of {} failures; 1 to {} of {} failure domains",
                    wanted.failures, request.domains() - 1, request.domains());
    }
    if (!(wanted.probability >= 0 && wanted.probability <= 1)) {
      return refuse("a recovery wanted of probability {}; 0 to 1", wanted.probability);
    }
  }
  return {};
}

Status check_replicas(const PlacementRequest& request) {
  const uint64_t needed = uint64_t{request.experts()} * request.replicas_min;
  if (needed > request.slots()) {
    return refuse("{} ranks of {} slots are {} slots; {} experts of at least {} replicas need {}",
                  request.ranks, request.slots_per_rank, request.slots(), request.experts(),
                  request.replicas_min, needed);
  }
  const uint32_t possible = replicas_possible(request);
  if (possible >= request.replicas_min) return {};
  return refuse(
      "replicas of every expert in {} distinct failure domains; {} domains of these sizes can give "
      "{}",
      request.replicas_min, request.domains(), possible);
}

}  // namespace

uint32_t PlacementRequest::domains() const {
  return domain_of_rank.empty() ? ranks : std::ranges::max(domain_of_rank) + 1;
}

uint32_t replicas_possible(const PlacementRequest& request) {
  const uint32_t experts = request.experts();
  if (experts == 0) return 0;
  std::vector<uint64_t> slots_of(request.domains());
  for (uint32_t rank = 0; rank < request.ranks; ++rank) {
    slots_of[request.domain(rank)] += request.slots_per_rank;
  }
  // A domain serves an expert once. By Gale and Ryser that is the only bound: f distinct domains
  // for each of E experts exist if the domains can serve f * E in all and there are f of them.
  uint64_t serves = 0;
  for (const uint64_t slots : slots_of) serves += std::min<uint64_t>(slots, experts);
  const uint64_t possible = std::min<uint64_t>(serves / experts, slots_of.size());
  return static_cast<uint32_t>(std::min<uint64_t>(possible, request.replicas_min));
}

Status validate(const PlacementRequest& request) {
  CKPT_TRY(check_sizes(request));
  CKPT_TRY(check_loads(request));
  CKPT_TRY(check_domains(request));
  CKPT_TRY(check_current(request));
  CKPT_TRY(check_failures(request));
  return check_replicas(request);
}

}  // namespace moetrain
