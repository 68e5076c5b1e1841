// LayerPlanner: all layers of a request within one family of domain sets, each searched for the
// best balance (layer_search.h). The search is bounded for all layers together, in probes and
// not in time: the same request gives the same layers on every rank of one kind of machine. All
// calls of a planner share that bound; a plan has half of a layer's work for each layer,
// whatever is left.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/placement/layer_search.h"
#include "trainer/placement/policy.h"

namespace moetrain {

inline constexpr double kBalanceEnough = 1.01;  // a lower value would not be noticeable
inline constexpr double kBalanceGood = 1.03;    // no dead end is left below
inline constexpr double kBalancePoor = 1.1;     // above, the search is longer

struct PlannedLayers {
  std::vector<LayerSlots> layers;
  double max_over_mean = 1;  // mean over layers
};

class LayerPlanner {
 public:
  // The request is valid and outlives this.
  explicit LayerPlanner(const PlacementRequest& request);

  // Starts with the layers `from`, which are within the family already, or from nothing if null. No
  // layer becomes worse than it was. None if a layer is not within the family, or if its experts do
  // not fit.
  std::optional<PlannedLayers> plan(const Family& family,
                                    const std::vector<LayerSlots>* from = nullptr);

  // Estimates plan()'s result: the mean over a few layers, searched briefly. Otherwise as plan().
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
