#include "trainer/placement/layer_planner.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace moetrain {

namespace {

// Work limit of a layer's search: about 2 ms, more from 1,250 slots on. All layers together have
// three quarters of that each: most layers soon are good enough.
constexpr int64_t kWork = 500'000;
constexpr int64_t kWorkPerSlot = 400;
constexpr int64_t kMoreWork = 3;         // extra layers' worth, to share among few layers
constexpr int64_t kSlices = 4;           // parts of that, which layers get by turns
constexpr uint32_t kFruitlessMax = 100;  // dead ends in a row without an improvement
constexpr double kSampleShare = 0.28;    // part of a layer's work, to compare families
constexpr size_t kSamples = 3;           // layers for comparing families
constexpr int64_t kLeastShare = 2;       // a plan gets at least 1/2 of the work of all layers
// Layers far from the goal are searched before those that are merely not good.
struct Turns {
  double good;          // for layers above this,
  double share;         // part of the remaining work,
  int64_t layers_work;  // per layer at most this many times a layer's work
};
constexpr Turns kTurns[] = {{1.25, 0.5, 6}, {kBalancePoor, 0.75, 6}, {kBalanceGood, 1, 1}};
constexpr double kHardlyBetter = 1e-6;

std::vector<double> as_doubles(const std::vector<uint64_t>& loads) {
  std::vector<double> doubles(loads.begin(), loads.end());
  // A layer without tokens counts as evenly loaded.
  if (has_no_load(loads)) std::ranges::fill(doubles, 1);
  return doubles;
}

// Leaves a dead end, in varying ways: near the best placement, or from a new start.
void leave_dead_end(LayerSearch& search, const LayerSlots& best, uint32_t times,
                    std::mt19937& random, int64_t work) {
  using enum LayerSearch::Start;
  const LayerSearch::Start start = times % 4 == 1 ? kAllReplicas : kMembers;
  if (times % 2 == 1 && search.rebuild(start, random, work)) return;
  search.adopt(best);
  search.kick(random);
}

}  // namespace

// The best placement of a layer so far, and the state of its search.
struct LayerPlanner::Progress {
  LayerSlots slots;
  double max_over_mean = 1;
  double least = 1;  // lower bound of any placement in the family
  int64_t work = 0;  // done
  uint32_t dead_ends = 0;
  uint32_t fruitless = 0;  // dead ends since the last improvement
  std::mt19937 random{1};

  double enough() const { return kBalanceEnough * least; }
  bool settled(double good) const {
    return max_over_mean <= std::max(good, enough()) || fruitless >= kFruitlessMax;
  }
  // Small moves lower a potential, not the maximum itself: the maximum may have risen.
  void keep_better(const LayerSearch& search) {
    ++fruitless;
    if (search.max_over_mean() >= max_over_mean - kHardlyBetter) return;
    slots = search.slots();
    max_over_mean = search.max_over_mean();
    fruitless = 0;
  }
};

LayerPlanner::LayerPlanner(const PlacementRequest& request)
    : request_(request), work_left_(work_of_layer() * (request.layers() * 3 / 4 + kMoreWork)) {
  loads_.reserve(request.layers());
  for (const auto& loads : request.loads) loads_.push_back(as_doubles(loads));
}

int64_t LayerPlanner::work_of_layer() const {
  return std::max(kWork, kWorkPerSlot * request_.slots());
}

// Searches to a dead end, from both starts if the first is poor.
std::optional<LayerPlanner::Progress> LayerPlanner::begin(const Family& family, uint32_t layer,
                                                          const LayerSlots* from,
                                                          int64_t& work) const {
  LayerSearch search(request_, family, loads_[layer]);
  const bool fits = from != nullptr ? search.adopt(*from)  //
                                    : search.build(LayerSearch::Start::kMembers, work);
  if (!fits) return std::nullopt;
  Progress progress{.slots = search.slots(),
                    .max_over_mean = search.max_over_mean(),
                    .least = search.least_max_over_mean()};
  const int64_t before = work;
  search.improve(work, progress.enough());
  progress.keep_better(search);
  if (!progress.settled(kBalancePoor) && search.build(LayerSearch::Start::kAllReplicas, work)) {
    search.improve(work, progress.enough());
    progress.keep_better(search);
  }
  progress.work = before - work;
  return progress;
}

// Continues until the layer is good, no improvement is found for long, or `work` is done.
void LayerPlanner::search(const Family& family, uint32_t layer, Progress& progress, double good,
                          int64_t& work) const {
  LayerSearch search(request_, family, loads_[layer]);
  const int64_t before = work;
  while (work > 0 && !progress.settled(good)) {
    leave_dead_end(search, progress.slots, progress.dead_ends++, progress.random, work);
    search.improve(work, progress.enough());
    progress.keep_better(search);
  }
  progress.work += before - work;
}

// Searches by turns, so that the work goes to the layers that need it.
void LayerPlanner::search_all(const Family& family, std::vector<Progress>& layers, double good,
                              int64_t work_of_layer, int64_t& work) const {
  const int64_t slice = this->work_of_layer() / kSlices;
  for (bool searched = true; searched && work > 0;) {
    searched = false;
    for (uint32_t at = 0; at < layers.size() && work > 0; ++at) {
      if (layers[at].settled(good) || layers[at].work >= work_of_layer) continue;
      const int64_t of_turn = std::min(slice, work);
      int64_t left = of_turn;
      search(family, at, layers[at], good, left);
      work -= of_turn - left;
      searched = true;
    }
  }
}

std::optional<PlannedLayers> LayerPlanner::plan(const Family& family,
                                                const std::vector<LayerSlots>* from) {
  const int64_t of_layer = work_of_layer();
  const auto count = static_cast<uint32_t>(loads_.size());
  work_left_ = std::max(work_left_, of_layer * count / kLeastShare);
  std::vector<Progress> layers;
  layers.reserve(count);
  for (uint32_t at = 0; at < count; ++at) {
    const int64_t most = std::min(of_layer, work_left_ / (count - at));
    int64_t left = most;
    auto progress = begin(family, at, from != nullptr ? &(*from)[at] : nullptr, left);
    work_left_ -= most - left;
    if (!progress) return std::nullopt;
    layers.push_back(std::move(*progress));
  }
  for (const Turns& turns : kTurns) {
    auto left = static_cast<int64_t>(static_cast<double>(work_left_) * turns.share);
    work_left_ -= left;
    search_all(family, layers, turns.good, turns.layers_work * of_layer, left);
    work_left_ += left;
  }
  PlannedLayers planned{.layers = {}, .max_over_mean = 0};
  planned.layers.reserve(count);
  for (Progress& layer : layers) {
    planned.layers.push_back(std::move(layer.slots));
    planned.max_over_mean += layer.max_over_mean / count;
  }
  return planned;
}

std::optional<double> LayerPlanner::sample(const Family& family,
                                           const std::vector<LayerSlots>* from) {
  double sum = 0;
  const std::vector<uint32_t> layers = samples();
  for (const uint32_t at : layers) {
    const auto most = static_cast<int64_t>(kSampleShare * static_cast<double>(work_of_layer()));
    int64_t left = most;
    auto progress = begin(family, at, from != nullptr ? &(*from)[at] : nullptr, left);
    if (progress) search(family, at, *progress, kBalanceGood, left);
    work_left_ -= most - left;
    if (!progress) return std::nullopt;
    sum += progress->max_over_mean;
  }
  return sum / static_cast<double>(layers.size());
}

// The most skewed layer, and others down to a third of the way from the least skewed.
std::vector<uint32_t> LayerPlanner::samples() const {
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

}  // namespace moetrain
