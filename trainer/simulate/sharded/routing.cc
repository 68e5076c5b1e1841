#include "trainer/simulate/sharded/routing.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "trainer/simulate/random.h"

namespace moetrain::simulate::sharded {

namespace {

// Two independent normal numbers (Box, Muller: Annals of Mathematical Statistics, 1958).
std::pair<double, double> normal_pair(Random& random) {
  const double radius = std::sqrt(-2 * std::log1p(-random.unit()));
  const double angle = 2 * std::numbers::pi * random.unit();
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void to_shares(std::vector<double>& weights, double at_most) {
  std::vector<bool> cut(weights.size());
  double free = 1;  // share of those that are not cut
  for (;;) {
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += cut[i] ? 0 : weights[i];
    bool again = false;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (cut[i] || weights[i] / sum * free <= at_most) continue;
      cut[i] = true;
      again = true;
    }
    if (!again) {
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i] = cut[i] ? at_most : weights[i] / sum * free;
      }
      return;
    }
    free = std::max(1 - at_most * static_cast<double>(std::ranges::count(cut, true)), 0.0);
    if (std::ranges::count(cut, false) == 0) {
      std::ranges::fill(weights, 1.0 / static_cast<double>(weights.size()));
      return;
    }
  }
}

Routing::Routing(const ShardedModel& model, const Shape& shape)
    : experts_(static_cast<uint32_t>(shape.experts)),
      sequences_(static_cast<uint32_t>(model.sequences)),
      tokens_(model.sequence_tokens * shape.top_k),
      at_most_(1 / shape.top_k),
      noise_(model.sequence_noise),
      seed_(static_cast<uint64_t>(model.seed)),
      log_weights_(static_cast<size_t>(shape.layers)) {
  for (size_t layer = 0; layer < log_weights_.size(); ++layer) {
    std::vector<double>& weights = log_weights_[layer];
    weights.resize(experts_);
    for (size_t place = 0; place < weights.size(); ++place) {
      weights[place] = -shape.zipf * std::log(static_cast<double>(place + 1));
    }
    Random random(seed_ * 1'000'003 + layer);
    for (size_t i = weights.size(); i > 1; --i) std::swap(weights[i - 1], weights[random.below(i)]);
  }
}

TokenCounts Routing::sequences(uint64_t step, uint32_t layer) const {
  Random random(((seed_ + 1) * 1'000'003 + step) * 1'000'003 + layer);
  TokenCounts rows(sequences_);
  for (std::vector<double>& row : rows) {
    row.resize(experts_);
    for (uint32_t e = 0; e < experts_; e += 2) {
      const auto [even, odd] = normal_pair(random);
      row[e] = std::exp(log_weights_[layer][e] + noise_ * even);
      if (e + 1 < experts_) row[e + 1] = std::exp(log_weights_[layer][e + 1] + noise_ * odd);
    }
    to_shares(row, at_most_);
    for (double& value : row) value *= tokens_;
  }
  return rows;
}

TokenCounts add_rows(const TokenCounts& rows, size_t first, size_t count, size_t together) {
  TokenCounts sums(count, std::vector<double>(rows.front().size()));
  for (size_t i = 0; i < count * together; ++i) {
    std::vector<double>& sum = sums[i / together];
    const std::vector<double>& row = rows[first + i];
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += row[e];
  }
  return sums;
}

}  // namespace moetrain::simulate::sharded
