#include "trainer/simulate/load_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trainer/placement/routing_csv.h"
#include "trainer/simulate/random.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// A trace of a model of this size is a gigabyte; more is a mistake.
constexpr size_t kTraceValuesMax = size_t{1} << 27;
// Memory limit of synthetic epochs in a simulation: 8 bytes for each expert of each.
constexpr size_t kEpochBytesMax = size_t{4} << 30;

}  // namespace

std::vector<uint64_t> to_units(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> units(weights.size());
  uint64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = total > 0 ? weights[i] / total : 1.0 / static_cast<double>(weights.size());
    units[i] = static_cast<uint64_t>(share * static_cast<double>(kLoadUnits));
    units[i] = std::min(units[i], kLoadUnits - given);
    given += units[i];
  }
  for (size_t i = 0; given < kLoadUnits; i = (i + 1) % units.size(), ++given) ++units[i];
  return units;
}

LoadModel::LoadModel(const CostModel& model, std::vector<uint64_t> starts)
    : grid_{static_cast<uint32_t>(model.layers), static_cast<uint32_t>(model.experts)},
      epoch_steps_(static_cast<uint64_t>(model.drift_steps)),
      starts_(std::move(starts)),
      seed_(static_cast<uint64_t>(model.seed)),
      exchanges_(static_cast<uint32_t>(std::lround(model.drift * model.experts))) {}

LoadModel LoadModel::zipf(const CostModel& model) {
  LoadModel load(model, {});
  std::vector<double> weights(load.grid_.experts);
  for (size_t place = 0; place < weights.size(); ++place) {
    weights[place] = std::pow(static_cast<double>(place + 1), -model.zipf);
  }
  load.by_place_ = to_units(weights);
  load.distinct_ = std::min(load.grid_.layers, kDistinctLayersMax);
  load.order_.resize(load.distinct_);
  for (uint32_t layer = 0; layer < load.distinct_; ++layer) {
    std::vector<uint32_t>& order = load.order_[layer];
    order.resize(load.grid_.experts);
    std::iota(order.begin(), order.end(), 0U);
    Random random(load.seed_ * 1'000'003 + layer);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  return load;
}

Result<LoadModel> LoadModel::from_trace(const CostModel& model, std::string_view csv,
                                        std::string_view origin) {
  RoutingCsv trace(csv, origin);
  LoadModel load(model, {});
  size_t values = 0;
  for (;;) {
    CKPT_ASSIGN(const auto sample, trace.next());
    if (!sample) break;
    if (trace.experts() != load.grid_.experts) {
      return make_error(ErrorCode::kInvalidArgument, "{}: {} experts, the model has {}", origin,
                        trace.experts(), load.grid_.experts);
    }
    values += sample->layers.size() * trace.experts();
    if (values > kTraceValuesMax) {
      return trace.refuse(fmt::format("more than {} counts", kTraceValuesMax));
    }
    load.distinct_ = std::min(load.grid_.layers, static_cast<uint32_t>(sample->layers.size()));
    auto& layers = load.epochs_.emplace_back(load.grid_.layers);
    for (size_t l = 0; l < layers.size(); ++l) {
      const auto& tokens = sample->layers[l % sample->layers.size()];
      layers[l] = to_units({tokens.begin(), tokens.end()});
    }
    load.starts_.push_back(load.starts_.empty() ? 0 : sample->iteration);
  }
  return load;
}

uint32_t LoadModel::epoch_of(uint64_t step) const {
  if (starts_.empty()) return static_cast<uint32_t>(step / epoch_steps_);
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), step);
  return static_cast<uint32_t>(after - starts_.begin()) - 1;
}

uint64_t LoadModel::epoch_end(uint64_t step) const {
  const uint64_t next = uint64_t{epoch_of(step)} + 1;
  if (starts_.empty()) return next * epoch_steps_;
  return next < starts_.size() ? starts_[next] : std::numeric_limits<uint64_t>::max();
}

const std::vector<std::vector<uint64_t>>& LoadModel::loads(uint32_t epoch) const {
  // A run so long that its loads do not fit into memory stays with the last ones that do.
  const size_t most = std::max<size_t>(kEpochBytesMax / (8 * grid_.size()), 1);
  const size_t wanted = std::min<size_t>(epoch, most - 1);
  while (starts_.empty() && epochs_.size() <= wanted) extend();
  return epochs_[std::min(wanted, epochs_.size() - 1)];
}

void LoadModel::extend() const {
  std::vector<std::vector<uint64_t>> layers(grid_.layers);
  for (uint32_t layer = 0; layer < distinct_; ++layer) {
    std::vector<uint32_t>& order = order_[layer];
    if (!epochs_.empty() && order.size() > 1) {
      Random random((seed_ * 1'000'003 + layer) * 1'000'003 + epochs_.size());
      for (uint32_t i = 0; i < exchanges_; ++i) {
        const size_t place = random.below(order.size() - 1);
        std::swap(order[place], order[place + 1]);
      }
    }
    layers[layer].resize(grid_.experts);
    for (size_t place = 0; place < order.size(); ++place) {
      layers[layer][order[place]] = by_place_[place];
    }
  }
  for (uint32_t layer = distinct_; layer < grid_.layers; ++layer) {
    layers[layer] = layers[layer % distinct_];
  }
  epochs_.push_back(std::move(layers));
}

}  // namespace moetrain::simulate
