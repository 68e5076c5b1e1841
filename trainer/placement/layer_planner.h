// LayerPlanner: all layers of a request within one family of domain sets, each searched for the
// best balance (layer_search.h). What is searched is bounded for all layers together, in looks and
// not in time: the same request gives the same layers on every rank of one kind of machine. All
// that a planner is asked for shares that bound; a plan has half of a layer's work for each layer,
// whatever is left.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/placement/layer_search.h"
#include "trainer/placement/policy.h"

namespace moetrain {

inline constexpr double kBalanceEnough = 1.01;  // nobody would notice less
inline constexpr double kBalanceGood = 1.03;    // no dead end is left below
inline constexpr double kBalancePoor = 1.1;     // above, it is searched longer

struct PlannedLayers {
  std::vector<LayerSlots> layers;
  double max_over_mean = 1;  // mean over layers
};

class LayerPlanner {
 public:
  // The request is valid and outlives this.
  explicit LayerPlanner(const PlacementRequest& request);

  // Begins with `from`, layers that are within the family already, or from nothing where that is
  // null. No layer comes out worse than it was. None if one is not within the family, or its
  // experts do not fit.
  std::optional<PlannedLayers> plan(const Family& family,
                                    const std::vector<LayerSlots>* from = nullptr);

  // What to expect: the mean over a few layers, searched a little. Otherwise as plan().
  std::optional<double> sample(const Family& family, const std::vector<LayerSlots>* from = nullptr);

 private:
  struct Progress;

  std::optional<Progress> begin(const Family& family, uint32_t layer, const LayerSlots* from,
                                int64_t& work) const;
  void search(const Family& family, uint32_t layer, Progress& progress, double good,
              int64_t& work) const;
  void search_all(const Family& family, std::vector<Progress>& layers, double good,
                  int64_t work_of_layer, int64_t& work) const;
  int64_t work_of_layer() const;
  std::vector<uint32_t> samples() const;

  const PlacementRequest& request_;
  std::vector<std::vector<double>> loads_;
  int64_t work_left_;
};

}  // namespace moetrain
