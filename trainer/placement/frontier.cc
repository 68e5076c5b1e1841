#include "trainer/placement/frontier.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "trainer/placement/allocation.h"
#include "trainer/placement/families.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/layer_planner.h"
#include "trainer/placement/lazarus.h"
#include "trainer/placement/others.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr size_t kTriedFirst = 8;   // families to compare
constexpr size_t kTriedLater = 4;   // more families, if none was balanced
constexpr double kRounding = 1e-9;  // of probabilities

// Required recovery, and a placement that surely reaches it.
struct Goal {
  std::vector<RecoveryWanted> wanted;
  std::vector<LayerSlots> reference;  // within `fallback`
  RatedFamily fallback;
  uint32_t failed_max = 0;  // the most failures that are wanted or asked for
};

Goal goal_of(const PlacementRequest& request, std::vector<LayerSlots> reference) {
  Goal goal{.wanted = request.recovery_wanted, .reference = std::move(reference)};
  uint32_t& most = goal.failed_max;
  for (const uint32_t failed : failures_asked(request)) most = std::max(most, failed);
  for (const RecoveryWanted& one : goal.wanted) most = std::max(most, one.failures);
  goal.fallback = family_of(goal.reference, request, most);
  if (!goal.wanted.empty()) return goal;
  for (const uint32_t failed : failures_asked(request)) {
    goal.wanted.push_back({failed, goal.fallback.recovery[failed - 1]});
  }
  return goal;
}

Result<Goal> find_goal(const PlacementRequest& request, bool search) {
  CKPT_ASSIGN(std::vector<LayerSlots> reference, plan_lazarus(request, search));
  return goal_of(request, std::move(reference));
}

bool reaches(const std::vector<double>& recovery, const std::vector<RecoveryWanted>& wanted) {
  return std::ranges::all_of(wanted, [&](const RecoveryWanted& one) {
    return recovery[one.failures - 1] >= one.probability - kRounding;
  });
}

ckpt::Error out_of_reach(std::span<const RatedFamily> families, const Goal& goal) {
  std::string best;
  for (const RecoveryWanted& one : goal.wanted) {
    double most = goal.fallback.recovery[one.failures - 1];
    for (const RatedFamily& family : families) {
      most = std::max(most, family.recovery[one.failures - 1]);
    }
    best += fmt::format("{}{} failures: {:.4f} wanted, at most {:.4f}", best.empty() ? "" : "; ",
                        one.failures, one.probability, most);
  }
  return make_error(ErrorCode::kFailedPrecondition,
                    "placement frontier: no placement found that recovers so often ({}{})", best,
                    goal.wanted.size() > 1 ? ", each by itself" : "");
}

struct Planned {
  PlannedLayers plan;
  std::vector<double> recovery;  // [k - 1]: at least this
};

struct Tried {
  const RatedFamily* family;
  const std::vector<LayerSlots>* from;  // null: start from nothing
  double balance;                       // expected
};

// An even sample of the families, including the last.
std::vector<const RatedFamily*> some_of(std::span<const RatedFamily* const> families) {
  const size_t count = std::min(families.size(), kTriedLater);
  std::vector<const RatedFamily*> some;
  some.reserve(count + 1);
  for (size_t i = 1; i <= count; ++i) some.push_back(families[i * families.size() / count - 1]);
  return some;
}

// Tries candidates by preference: the achievable balance decides, and among nearly equal ones the
// recovery. The most survivable families come first; if none of them is
// balanced, a few of the others and the placement of Maximum Rank Overlap follow.
std::vector<Tried> try_families(const Goal& goal, LayerPlanner& planner,
                                std::span<const RatedFamily> families) {
  const bool balance_only =
      std::ranges::all_of(goal.wanted, [](const auto& one) { return one.probability == 0; });
  const double tolerance = balance_only ? 0 : kBalanceTolerance;
  std::vector<const RatedFamily*> reaching;
  reaching.reserve(families.size());
  for (const RatedFamily& family : families) {
    if (reaches(family.recovery, goal.wanted)) reaching.push_back(&family);
  }
  // The last family restricts balance least.
  if (balance_only) std::ranges::reverse(reaching);
  std::vector<Tried> tried;
  double best = HUGE_VAL;
  const auto try_until = [&](std::span<const RatedFamily* const> some, double good) {
    for (const RatedFamily* family : some) {
      if (best <= good) return;  // no later candidate could be preferred
      const auto* from = family == &goal.fallback ? &goal.reference : nullptr;
      const auto balance = planner.sample(family->family, from);
      if (!balance) continue;
      tried.push_back({family, from, *balance});
      best = std::min(best, *balance);
    }
  };
  const std::span<const RatedFamily* const> all(reaching);
  const size_t first = std::min(all.size(), kTriedFirst);
  try_until(all.first(first), balance_only ? kBalanceEnough : kBalanceGood + tolerance / 2);
  std::vector<const RatedFamily*> later = some_of(all.subspan(first));
  if (reaches(goal.fallback.recovery, goal.wanted)) later.push_back(&goal.fallback);
  try_until(later, kBalancePoor);
  std::ranges::stable_partition(tried,
                                [&](const Tried& one) { return one.balance <= best + tolerance; });
  return tried;
}

// If another policy's placement is better balanced, and survives the wanted losses, continue from
// that placement.
Status prefer_others(const Goal& goal, const PlacementRequest& request, LayerPlanner& planner,
                     Planned& planned) {
  const auto weigh = [&](const std::vector<LayerSlots>& layers, const RatedFamily* known) {
    if (mean_balance(layers, request) >= planned.plan.max_over_mean - kRounding) return;
    if (!may_reach(layers, request, goal.wanted)) return;
    std::optional<RatedFamily> found;
    if (known == nullptr) {
      found = exact_family_of(layers, request, goal.failed_max);
      if (!found) return;
      known = &*found;
    }
    if (!reaches(known->recovery, goal.wanted)) return;
    if (auto plan = planner.plan(known->family, &layers)) {
      planned = {std::move(*plan), known->recovery};
    }
  };
  weigh(goal.reference, &goal.fallback);
  for (const PolicyName policy : {PolicyName::kEplb, PolicyName::kLaer, PolicyName::kStatic}) {
    if (policy == PolicyName::kLaer && request.domains() > kExactRanksMax) continue;  // slow
    CKPT_ASSIGN(const auto layers, promised_layers(policy, request));
    if (layers) weigh(*layers, nullptr);
  }
  return {};
}

Result<Planned> plan_tried(const std::vector<Tried>& tried, const Goal& goal,
                           const PlacementRequest& request, LayerPlanner& planner,
                           std::span<const RatedFamily> families) {
  for (const Tried& one : tried) {
    auto plan = planner.plan(one.family->family, one.from);
    if (!plan) continue;
    Planned planned{std::move(*plan), one.family->recovery};
    CKPT_TRY(prefer_others(goal, request, planner, planned));
    return planned;
  }
  return out_of_reach(families, goal);
}

// Upper bound of what `lazarus`, which searches every layer, survives: all layers together survive
// at most what the weakest layer survives alone, which costs the search of one layer.
std::optional<std::vector<RecoveryWanted>> most_by_search(const PlacementRequest& request) {
  const std::vector<uint32_t> asked = failures_asked(request);
  std::vector<RecoveryWanted> most;
  if (asked.empty()) return most;  // one domain: its loss loses everything
  // The layer with the most experts of the lowest replica count.
  std::vector<std::ptrdiff_t> scarce;
  scarce.reserve(request.layers());
  for (const auto& loads : request.loads) {
    const auto counts = allocate_replicas(loads, request.slots(), request.replicas_min);
    if (!counts) return std::nullopt;
    scarce.push_back(std::ranges::count(*counts, std::ranges::min(*counts)));
  }
  const auto weakest = static_cast<size_t>(std::ranges::max_element(scarce) - scarce.begin());
  const auto searched = lazarus_layer(request.loads[weakest], lazarus_options(request, true));
  if (!searched) return std::nullopt;
  const RatedFamily family = family_of({*searched}, request, std::ranges::max(asked));
  for (const uint32_t failed : asked) most.push_back({failed, family.recovery[failed - 1]});
  return most;
}

// If `lazarus` searches, its result may survive more than the first goal demands. The search takes
// long, and mostly the plan already survives as much as any search can reach.
Result<Planned> plan_up_to_search(const PlacementRequest& request, const Goal& quick,
                                  LayerPlanner& planner, std::span<const RatedFamily> families) {
  const auto most = most_by_search(request);
  if (most) {
    const std::vector<Tried> tried = try_families(quick, planner, families);
    if (!tried.empty() && reaches(tried.front().family->recovery, *most)) {
      auto planned = plan_tried(tried, quick, request, planner, families);
      if (planned && reaches(planned->recovery, *most)) return planned;
    }
  }
  CKPT_ASSIGN(const Goal goal, find_goal(request, true));
  LayerPlanner again(request);  // plans for the lower goal do not count
  return plan_tried(try_families(goal, again, families), goal, request, again, families);
}

// Removes dominated points and sorts the rest, best balanced first. Ignores rounding differences.
void keep_undominated(std::vector<FrontierPoint>& points, const std::vector<uint32_t>& failures) {
  const auto survival = [&](const FrontierPoint& point) {
    double sum = 0;
    for (const uint32_t failed : failures) sum += point.recovery[failed - 1];
    return sum;
  };
  std::stable_sort(points.begin(), points.end(),
                   [&](const FrontierPoint& a, const FrontierPoint& b) {
                     return a.max_over_mean < b.max_over_mean;
                   });
  std::vector<FrontierPoint> kept;
  kept.reserve(points.size());
  for (FrontierPoint& point : points) {
    if (!kept.empty() && survival(point) <= survival(kept.back()) + kRounding) continue;
    // Not better balanced, and less survivable.
    if (!kept.empty() && point.max_over_mean <= kept.back().max_over_mean + kRounding) {
      kept.pop_back();
    }
    kept.push_back(std::move(point));
  }
  points = std::move(kept);
}

}  // namespace

std::vector<uint32_t> failures_asked(const PlacementRequest& request) {
  if (request.failures > 0) return {request.failures};
  std::vector<uint32_t> failures;
  for (const uint32_t failed : {1u, 2u, 4u}) {
    if (failed < request.domains()) failures.push_back(failed);
  }
  return failures;
}

Result<std::vector<LayerSlots>> plan_frontier(const PlacementRequest& request) {
  const std::vector<RatedFamily> families = candidate_families(request, failures_asked(request));
  LayerPlanner planner(request);
  CKPT_ASSIGN(const Goal quick, find_goal(request, false));
  const bool searches = request.domains() <= kExactRanksMax && request.recovery_wanted.empty();
  auto planned = searches ? plan_up_to_search(request, quick, planner, families)
                          : plan_tried(try_families(quick, planner, families), quick, request,
                                       planner, families);
  if (!planned) return planned.error();
  return std::move(planned->plan.layers);
}

Result<std::vector<FrontierPoint>> frontier_points(const PlacementRequest& request) {
  const std::vector<uint32_t> failures = failures_asked(request);
  std::vector<FrontierPoint> points;
  const auto add = [&](std::vector<LayerSlots> layers) -> Status {
    CKPT_ASSIGN(const Judgement judgement, judge(layers, request));
    FrontierPoint& point = points.emplace_back();
    point.layers = std::move(layers);
    point.max_over_mean = judgement.max_over_mean;
    point.max_over_mean_worst = judgement.max_over_mean_worst;
    for (const RecoveryAt& at : judgement.recovery) point.recovery.push_back(at.probability);
    return {};
  };
  for (const RatedFamily& family : candidate_families(request, failures)) {
    if (auto planned = LayerPlanner(request).plan(family.family))
      CKPT_TRY(add(std::move(planned->layers)));
  }
  for (const PolicyName policy : kPolicies) {
    if (policy == PolicyName::kFrontier) continue;
    CKPT_ASSIGN(auto layers, promised_layers(policy, request));
    if (!layers) continue;
    const RatedFamily family = family_of(*layers, request, request.domains());
    if (auto planned = LayerPlanner(request).plan(family.family, &*layers)) {
      CKPT_TRY(add(std::move(planned->layers)));
    }
  }
  if (auto chosen = plan_frontier(request)) CKPT_TRY(add(std::move(*chosen)));
  keep_undominated(points, failures);
  return points;
}

}  // namespace moetrain
