#include "trainer/simulate/load_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "formats/base/printable.h"
#include "trainer/simulate/random.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// A trace of a model of this size is a gigabyte; more is a mistake.
constexpr size_t kTraceValuesMax = size_t{1} << 27;
constexpr int64_t kTokensMax = int64_t{1} << 48;  // of one expert in one sample
// Made-up epochs that a simulation may ask for: memory, 8 bytes for each expert of each.
constexpr size_t kEpochBytesMax = size_t{4} << 30;

// The numbers of one line; empty if it is anything else.
std::vector<int64_t> numbers(std::string_view line) {
  std::vector<int64_t> values;
  const char* at = line.data();
  const char* const end = at + line.size();
  for (;;) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value > kTokensMax) return {};
    values.push_back(value);
    if (stop == end) return values;
    if (*stop != ',') return {};
    at = stop + 1;
  }
}

struct Rows {
  std::vector<std::vector<std::vector<uint64_t>>> samples;  // [sample][layer][expert]
  std::vector<uint64_t> iterations;
};

// Puts one line into `rows`; what is wrong with it otherwise.
std::string add_line(std::string_view line, uint32_t experts, Rows& rows) {
  const std::vector<int64_t> values = numbers(line);
  if (values.size() != size_t{experts} + 2) {
    return fmt::format("'{}' is not iteration,layer and {} counts", ckpt::base::printable(line, 60),
                       experts);
  }
  const auto iteration = static_cast<uint64_t>(values[0]);
  if (rows.iterations.empty() || iteration != rows.iterations.back()) {
    if (!rows.iterations.empty() && iteration < rows.iterations.back()) {
      return fmt::format("iteration {} after {}", iteration, rows.iterations.back());
    }
    if (rows.samples.size() > 1 && rows.samples.back().size() != rows.samples.front().size()) {
      return fmt::format("iteration {} has {} layers, the first one {}", rows.iterations.back(),
                         rows.samples.back().size(), rows.samples.front().size());
    }
    rows.iterations.push_back(iteration);
    rows.samples.emplace_back();
  }
  if (static_cast<uint64_t>(values[1]) != rows.samples.back().size()) {
    return fmt::format("layer {} where {} is due", values[1], rows.samples.back().size());
  }
  const std::vector<double> weights(values.begin() + 2, values.end());
  rows.samples.back().push_back(to_units(weights));
  if (rows.samples.size() * rows.samples.front().size() * experts > kTraceValuesMax) {
    return fmt::format("more than {} counts", kTraceValuesMax);
  }
  return {};
}

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
  Rows rows;
  size_t number = 0;
  while (!csv.empty()) {
    ++number;
    const size_t length = std::min(csv.find('\n'), csv.size());
    const std::string_view line = csv.substr(0, length);
    csv.remove_prefix(std::min(length + 1, csv.size()));
    if (line.empty() || (number == 1 && line.starts_with("iteration,layer"))) continue;
    const std::string wrong = add_line(line, static_cast<uint32_t>(model.experts), rows);
    if (!wrong.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}", origin, number, wrong);
    }
  }
  if (rows.samples.empty() || rows.samples.back().size() != rows.samples.front().size()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", origin,
                      rows.samples.empty() ? "no samples" : "the last iteration lacks layers");
  }
  std::vector<uint64_t> starts(rows.iterations.begin(), rows.iterations.end());
  starts.front() = 0;
  LoadModel load(model, std::move(starts));
  load.distinct_ =
      std::min<uint32_t>(load.grid_.layers, static_cast<uint32_t>(rows.samples.front().size()));
  for (auto& sample : rows.samples) {
    std::vector<std::vector<uint64_t>> layers(load.grid_.layers);
    for (size_t l = 0; l < layers.size(); ++l) layers[l] = sample[l % sample.size()];
    load.epochs_.push_back(std::move(layers));
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
