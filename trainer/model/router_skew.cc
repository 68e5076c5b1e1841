#include "trainer/model/router_skew.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/model/philox.h"

namespace moetrain {
namespace {

constexpr uint64_t kKey = 0x736b6577;  // any number
constexpr uint64_t kOrderStream = ~uint64_t{0};

// [expert]: its share of the logits, by popularity.
std::vector<float> popularity(const ModelConfig& config, uint32_t layer) {
  std::vector<uint32_t> order(config.experts);
  std::iota(order.begin(), order.end(), 0u);
  const uint64_t stream = kOrderStream - config.router_skew_order;
  std::ranges::stable_sort(
      order, {}, [&](uint32_t expert) { return philox(kKey + layer, expert, stream)[0]; });
  std::vector<float> logits(config.experts);
  for (uint32_t i = 0; i < config.experts; ++i) {
    logits[order[i]] = static_cast<float>(-config.router_skew * std::log(i + 1.0));
  }
  return logits;
}

}  // namespace

std::vector<float> skew_logits(const ModelConfig& config, uint32_t layer,
                               std::span<const int32_t> tokens) {
  const std::vector<float> mean = popularity(config, layer);
  std::vector<float> logits(tokens.size() * config.experts);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint64_t place = (uint64_t{static_cast<uint32_t>(tokens[i])} << 32) | i % config.seq_len;
    for (uint32_t expert = 0; expert < config.experts; ++expert) {
      const double uniform = unit_uniform(philox(kKey + layer, place, expert)[0]);
      logits[i * config.experts + expert] =
          mean[expert] - static_cast<float>(std::log(-std::log(uniform)));
    }
  }
  return logits;
}

}  // namespace moetrain
