#include "trainer/placement/frontier.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <tuple>

#include "trainer/placement/allocation.h"
#include "trainer/placement/families.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/lazarus.h"
#include "trainer/placement/recovery.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr double kEnough = 1.01;      // nobody would notice less
constexpr double kGoodEnough = 1.03;  // no kicks below
constexpr double kPoor = 1.1;         // above, a layer is searched further
// What the search of a layer may look at: about 3 ms, more from 2,000 slots on.
constexpr int64_t kWork = 600'000;
constexpr int64_t kWorkPerSlot = 300;
constexpr int64_t kPoorWork = 3;     // times as much again, where a layer is poor
constexpr int64_t kSampleShare = 5;  // of this, for a comparison of families
constexpr size_t kSamples = 3;       // layers that families are compared on
constexpr size_t kTriedMax = 8;      // families that are compared
constexpr double kRounding = 1e-9;   // of probabilities

struct PlannedLayer {
  LayerSlots slots;
  double max_over_mean = 1;
};

std::vector<double> as_doubles(const std::vector<uint64_t>& loads) {
  std::vector<double> doubles(loads.begin(), loads.end());
  // Nobody asked: as if all had been asked equally often.
  if (std::ranges::all_of(loads, [](uint64_t load) { return load == 0; })) {
    std::ranges::fill(doubles, 1);
  }
  return doubles;
}

// Somewhere else to go on from, each time in another way: near the best, or from a new beginning.
void leave_dead_end(LayerSearch& search, const LayerSlots& best, uint32_t times,
                    std::mt19937& random) {
  using enum LayerSearch::Start;
  if (times % 2 == 1 && search.rebuild(times % 4 == 1 ? kAllReplicas : kMembers, random)) return;
  search.adopt(best);
  search.kick(random);
}

// Keeps the best of what it comes to. Leaves dead ends while that is not good, until `work` is
// done; then while it is poor, until `more` is.
PlannedLayer polish(LayerSearch& search, int64_t work, int64_t more) {
  std::mt19937 random(1);
  PlannedLayer best{search.slots(), search.max_over_mean()};
  const auto improve = [&] {
    search.improve(work, kEnough);
    if (search.max_over_mean() >= best.max_over_mean) return;
    best = {search.slots(), search.max_over_mean()};
  };
  uint32_t times = 0;
  const auto search_until = [&](double balance) {
    for (; work > 0 && best.max_over_mean > balance; ++times) {
      leave_dead_end(search, best.slots, times, random);
      improve();
    }
  };
  improve();
  search_until(kGoodEnough);
  work = more;
  search_until(kPoor);
  return best;
}

class Planner {
 public:
  explicit Planner(const PlacementRequest& request) : request_(request) {
    loads_.reserve(request.layers());
    for (const auto& loads : request.loads) loads_.push_back(as_doubles(loads));
  }

  std::optional<PlannedLayer> layer(uint32_t layer, const Family& family, int64_t work,
                                    int64_t more) const {
    LayerSearch search(request_, family, loads_[layer]);
    if (!search.build(LayerSearch::Start::kMembers)) return std::nullopt;
    return polish(search, work, more);
  }

  // Mean over a few layers; none if one does not fit.
  std::optional<double> sample(const Family& family) const {
    double sum = 0;
    const std::vector<uint32_t> layers = samples();
    for (const uint32_t at : layers) {
      const auto planned = layer(at, family, work() / kSampleShare, 0);
      if (!planned) return std::nullopt;
      sum += planned->max_over_mean;
    }
    return sum / static_cast<double>(layers.size());
  }

  std::optional<std::vector<LayerSlots>> all(const Family& family) const {
    std::vector<LayerSlots> layers;
    layers.reserve(loads_.size());
    for (uint32_t at = 0; at < loads_.size(); ++at) {
      auto planned = layer(at, family, work(), kPoorWork * work());
      if (!planned) return std::nullopt;
      layers.push_back(std::move(planned->slots));
    }
    return layers;
  }

  // Layers that are within the family already, better balanced.
  std::vector<LayerSlots> balanced(const Family& family,
                                   const std::vector<LayerSlots>& from) const {
    std::vector<LayerSlots> layers;
    layers.reserve(from.size());
    for (uint32_t at = 0; at < from.size(); ++at) {
      LayerSearch search(request_, family, loads_[at]);
      layers.push_back(search.adopt(from[at]) ? polish(search, work(), kPoorWork * work()).slots
                                              : from[at]);
    }
    return layers;
  }

 private:
  int64_t work() const { return std::max(kWork, kWorkPerSlot * request_.slots()); }

  // The most skewed layer, and others down to a third of the way from the least skewed.
  std::vector<uint32_t> samples() const {
    std::vector<double> skew;
    skew.reserve(loads_.size());
    for (const auto& loads : loads_) {
      const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
      skew.push_back(std::ranges::max(loads) / total);
    }
    std::vector<uint32_t> layers(loads_.size());
    std::iota(layers.begin(), layers.end(), 0u);
    std::stable_sort(layers.begin(), layers.end(),
                     [&](uint32_t a, uint32_t b) { return skew[a] > skew[b]; });
    if (layers.size() <= kSamples) return layers;
    std::vector<uint32_t> chosen;
    chosen.reserve(kSamples);
    for (size_t i = 0; i < kSamples; ++i) chosen.push_back(layers[i * layers.size() / kSamples]);
    return chosen;
  }

  const PlacementRequest& request_;
  std::vector<std::vector<double>> loads_;
};

// What has to be reached, and what reaches it for certain.
struct Goal {
  std::vector<RecoveryWanted> wanted;
  std::vector<LayerSlots> reference;  // within `fallback`
  RatedFamily fallback;
};

Goal goal_of(const PlacementRequest& request, std::vector<LayerSlots> reference) {
  Goal goal{.wanted = request.recovery_wanted, .reference = std::move(reference)};
  uint32_t most = 0;
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

bool reaches(const RatedFamily& family, const std::vector<RecoveryWanted>& wanted) {
  return std::ranges::all_of(wanted, [&](const RecoveryWanted& one) {
    return family.recovery[one.failures - 1] >= one.probability - kRounding;
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
  std::vector<LayerSlots> layers;
  std::vector<double> recovery;  // [k - 1]: at least this
};

Result<std::vector<LayerSlots>> layers_of(Result<Planned> planned) {
  if (!planned) return planned.error();
  return std::move(planned->layers);
}

Result<Planned> plan_for(const Goal& goal, const Planner& planner,
                         std::span<const RatedFamily> families) {
  const bool balance_only =
      std::ranges::all_of(goal.wanted, [](const auto& one) { return one.probability == 0; });
  struct Tried {
    const RatedFamily* family;
    double balance;
  };
  std::vector<Tried> tried;
  for (size_t i = 0; i < families.size() && tried.size() < kTriedMax; ++i) {
    // The last candidate restricts balance least; the most survivable ones come first.
    const RatedFamily& family = families[balance_only ? families.size() - 1 - i : i];
    if (!reaches(family, goal.wanted)) continue;
    const auto balance = planner.sample(family.family);
    if (!balance) continue;
    tried.push_back({&family, *balance});
    // None of those that follow could be preferred to it.
    if (*balance <= (balance_only ? kEnough : kGoodEnough + kBalanceTolerance)) break;
  }
  double best = HUGE_VAL;
  for (const Tried& one : tried) best = std::min(best, one.balance);
  const double tolerance = balance_only ? 0 : kBalanceTolerance;
  std::stable_partition(tried.begin(), tried.end(),
                        [&](const Tried& one) { return one.balance <= best + tolerance; });
  for (const Tried& one : tried) {
    if (auto layers = planner.all(one.family->family)) {
      return Planned{std::move(*layers), one.family->recovery};
    }
  }
  if (!reaches(goal.fallback, goal.wanted)) {
    return out_of_reach(families, goal);
  }
  return Planned{planner.balanced(goal.fallback.family, goal.reference), goal.fallback.recovery};
}

// Whether `lazarus`, which searches every layer, cannot have survived more: all layers together
// survive no more than the weakest of them does alone, which costs the search of one layer. Without
// domains only: there a renaming of ranks changes what a layer survives alone.
bool no_search_betters(const Planned& planned, const PlacementRequest& request) {
  const std::vector<uint32_t> asked = failures_asked(request);
  if (asked.empty()) return true;  // one domain: whoever loses that has lost everything
  if (!request.domain_of_rank.empty()) return false;
  // That with most experts of the fewest replicas.
  std::vector<std::ptrdiff_t> scarce;
  scarce.reserve(request.layers());
  for (const auto& loads : request.loads) {
    const auto counts = allocate_replicas(loads, request.slots(), request.replicas_min);
    if (!counts) return false;
    scarce.push_back(std::ranges::count(*counts, std::ranges::min(*counts)));
  }
  const auto weakest = static_cast<size_t>(std::ranges::max_element(scarce) - scarce.begin());
  const auto searched = lazarus_layer(request.loads[weakest], lazarus_options(request, true));
  if (!searched) return false;
  const std::vector<double> bound =
      family_of({*searched}, request, std::ranges::max(asked)).recovery;
  return std::ranges::all_of(asked, [&](uint32_t failed) {
    return planned.recovery[failed - 1] >= bound[failed - 1] - kRounding;
  });
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
  const Planner planner(request);
  CKPT_ASSIGN(const Goal quick, find_goal(request, false));
  auto planned = plan_for(quick, planner, families);
  if (request.domains() > kExactRanksMax) return layers_of(std::move(planned));
  if (planned && (!request.recovery_wanted.empty() || no_search_betters(*planned, request))) {
    return layers_of(std::move(planned));
  }
  CKPT_ASSIGN(const Goal searched, find_goal(request, true));
  return layers_of(plan_for(searched, planner, families));
}

Result<std::vector<FrontierPoint>> frontier_points(const PlacementRequest& request) {
  const std::vector<uint32_t> failures = failures_asked(request);
  const Planner planner(request);
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
    if (auto layers = planner.all(family.family)) CKPT_TRY(add(std::move(*layers)));
  }
  CKPT_ASSIGN(const Goal goal, find_goal(request, true));
  CKPT_TRY(add(planner.balanced(goal.fallback.family, goal.reference)));
  const auto survival = [&](const FrontierPoint& point) {
    double sum = 0;
    for (const uint32_t failed : failures) sum += point.recovery[failed - 1];
    return sum;
  };
  std::stable_sort(points.begin(), points.end(),
                   [&](const FrontierPoint& a, const FrontierPoint& b) {
                     if (a.max_over_mean != b.max_over_mean)
                       return a.max_over_mean < b.max_over_mean;
                     return survival(a) > survival(b);
                   });
  double most = -1;
  std::erase_if(points, [&](const FrontierPoint& point) {
    const bool dominated = survival(point) <= most + kRounding;
    most = std::max(most, survival(point));
    return dominated;
  });
  return points;
}

}  // namespace moetrain
