#include "trainer/model/zipf_popularity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/model/philox.h"

namespace moetrain {
namespace {

constexpr uint64_t kOrderKey = 0x736b6577;  // any number
constexpr uint64_t kOrderStream = ~uint64_t{0};

}  // namespace

std::vector<float> ZipfPopularity::logits(uint32_t layer, uint64_t /*step*/) const {
  std::vector<uint32_t> order(experts_);
  std::iota(order.begin(), order.end(), 0u);
  const uint64_t stream = kOrderStream - order_;
  std::ranges::stable_sort(
      order, {}, [&](uint32_t expert) { return philox(kOrderKey + layer, expert, stream)[0]; });
  std::vector<float> logits(experts_);
  for (uint32_t i = 0; i < experts_; ++i) {
    logits[order[i]] = static_cast<float>(-exponent_ * std::log(i + 1.0));
  }
  return logits;
}

}  // namespace moetrain
