#include "trainer/placement/load_window.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/placement/policy.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::Result;
using ckpt::Status;

namespace {

constexpr uint32_t kSaturated = std::numeric_limits<uint32_t>::max();

template <typename... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kCorrupt,
               "routing counts: " + fmt::format(format, std::forward<Args>(args)...)};
}

// Every layer has the same number of assignments; a saturated layer proves nothing. The sum of five
// such steps stays below kPlacementTokensMax.
Status check_layer_sums(std::span<const uint32_t> counts, uint32_t experts, uint64_t step) {
  uint64_t expected = 0;
  bool seen = false;
  for (size_t layer = 0; layer < counts.size() / experts; ++layer) {
    const auto of_layer = counts.subspan(layer * experts, experts);
    const uint64_t sum = std::accumulate(of_layer.begin(), of_layer.end(), uint64_t{0});
    if (sum > kPlacementTokensMax / LoadWindow::kStepsSummed) {
      return corrupt("layer {} of step {} has {} tokens", layer, step, sum);
    }
    if (std::ranges::find(of_layer, kSaturated) != of_layer.end()) continue;
    if (seen && sum != expected) {
      return corrupt("layer {} of step {} has {} tokens, another layer {}", layer, step, sum,
                     expected);
    }
    expected = sum;
    seen = true;
  }
  return {};
}

}  // namespace

void LoadWindow::record(std::span<const int64_t> routed) {
  CKPT_ASSERT(routed.size() == size());
  std::vector<uint32_t>& counts = steps_.emplace_back();
  counts.reserve(routed.size());
  for (const int64_t count : routed) {
    CKPT_ASSERT(count >= 0);
    counts.push_back(static_cast<uint32_t>(std::min(count, int64_t{kSaturated})));
  }
  if (steps_.size() > kStepsKept) steps_.erase(steps_.begin());
  ++last_step_;
}

bool LoadWindow::covers(uint64_t step) const {
  if (step == 0) return true;
  const uint64_t oldest_needed = step > kStepsSummed ? step - kStepsSummed + 1 : 1;
  return step <= last_step_ && oldest_needed + known_steps() > last_step_;
}

LayerLoads LoadWindow::sum(uint64_t step) const {
  LayerLoads sums;
  for (uint64_t back = 0; back < known_steps(); ++back) {
    const uint64_t at = last_step_ - back;
    if (at > step || at + kStepsSummed <= step) continue;
    if (sums.empty()) sums.assign(layers_, std::vector<uint64_t>(experts_));
    const std::vector<uint32_t>& counts = steps_[steps_.size() - 1 - back];
    for (size_t i = 0; i < counts.size(); ++i) sums[i / experts_][i % experts_] += counts[i];
  }
  return sums;
}

std::vector<std::byte> LoadWindow::encode() const {
  std::vector<std::byte> bytes(size() * kBytesPerExpert);
  const size_t unknown = kStepsKept - steps_.size();
  for (size_t i = 0; i < size(); ++i) {
    for (size_t step = 0; step < steps_.size(); ++step) {
      ckpt::base::store(bytes.data() + (i * kStepsKept + unknown + step) * sizeof(uint32_t),
                        steps_[step][i]);
    }
  }
  return bytes;
}

Result<LoadWindow> LoadWindow::decode(ckpt::ByteView bytes, uint32_t layers, uint32_t experts,
                                      uint64_t last_step) {
  LoadWindow window(layers, experts, last_step);
  if (bytes.size() != window.size() * kBytesPerExpert) {
    return corrupt("{} bytes; {} layers of {} experts have {}", bytes.size(), layers, experts,
                   window.size() * kBytesPerExpert);
  }
  for (uint32_t column = 0; column < kStepsKept; ++column) {
    std::vector<uint32_t> counts(window.size());
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] =
          ckpt::base::load<uint32_t>(bytes.data() + (i * kStepsKept + column) * sizeof(uint32_t));
    }
    const uint64_t age = kStepsKept - 1 - column;
    const bool known = std::ranges::any_of(counts, [](uint32_t count) { return count > 0; });
    if (!known && window.steps_.empty()) continue;
    if (!known) return corrupt("step {} is missing", last_step - age);
    if (age >= last_step) return corrupt("counts of more than {} steps", last_step);
    CKPT_TRY(check_layer_sums(counts, experts, last_step - age));
    window.steps_.push_back(std::move(counts));
  }
  return window;
}

}  // namespace moetrain
