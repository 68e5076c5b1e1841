#include "trainer/elastic/replanner.h"

#include <algorithm>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/placement/judge.h"

namespace moetrain {

namespace {

enum Measure : uint8_t { kRows, kCpuNs, kMovedBytes, kMovedNs, kMeasures };

// Until a move was measured: less than the loopback interface carries, so that the first move is
// not useless.
constexpr double kAssumedNsPerByte = 10;  // 100 MB/s
constexpr double kNsPerMs = 1e6;

std::vector<uint64_t> loads_of_layer(std::span<const int64_t> routed, uint32_t experts,
                                     uint32_t layer) {
  const auto of_layer = routed.subspan(size_t{layer} * experts, experts);
  return {of_layer.begin(), of_layer.end()};
}

double over(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Balance balance_of(const ComputePlacement& placement, std::span<const int64_t> routed) {
  CKPT_ASSERT(routed.size() == size_t{placement.layers()} * placement.experts);
  Balance balance;
  double mean_tokens = 0;
  double worst = 0;
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    const std::vector<uint64_t> loads = loads_of_layer(routed, placement.experts, layer);
    const auto tokens = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
    if (tokens == 0) continue;
    const double busiest = std::ranges::max(rank_loads(placement.slots[layer], loads));
    const double mean = static_cast<double>(tokens) / placement.ranks;
    balance.busiest_tokens += busiest;
    mean_tokens += mean;
    if (busiest > worst * mean) {
      worst = busiest / mean;
      balance.worst_layer = layer;
    }
  }
  if (mean_tokens > 0) balance.max_over_mean = balance.busiest_tokens / mean_tokens;
  return balance;
}

std::vector<std::vector<bool>> held_by(const ComputePlacement& placement) {
  std::vector<std::vector<bool>> held(
      placement.ranks, std::vector<bool>(size_t{placement.layers()} * placement.experts));
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
      for (const uint32_t expert : placement.slots[layer][rank]) {
        held[rank][size_t{layer} * placement.experts + expert] = true;
      }
    }
  }
  return held;
}

uint64_t experts_to_move(const ComputePlacement& current, const ComputePlacement& next) {
  CKPT_ASSERT(current.ranks == next.ranks && current.layers() == next.layers());
  const auto has = held_by(current);
  const auto wants = held_by(next);
  uint64_t count = 0;
  for (size_t rank = 0; rank < wants.size(); ++rank) {
    for (size_t i = 0; i < wants[rank].size(); ++i) {
      if (wants[rank][i] && !has[rank][i]) ++count;
    }
  }
  return count;
}

void Replanner::begin(uint64_t step, std::span<const int64_t> routed) {
  begun_at_ = step;
  begun_with_.assign(routed.begin(), routed.end());
  rows_ = 0;
  cpu_ns_ = 0;
}

bool Replanner::due(uint64_t step) const {
  return options_.every != 0 && step >= begun_at_ + options_.every && step < options_.steps;
}

std::vector<int64_t> Replanner::window(std::span<const int64_t> routed) const {
  std::vector<int64_t> since(routed.begin(), routed.end());
  for (size_t i = 0; i < begun_with_.size() && i < since.size(); ++i) since[i] -= begun_with_[i];
  return since;
}

void Replanner::computed(int64_t rows, int64_t cpu_ns) {
  rows_ += rows;
  cpu_ns_ += cpu_ns;
}

void Replanner::moved(uint64_t bytes, double ms) {
  const auto ns = static_cast<int64_t>(ms * kNsPerMs);
  if (bytes == 0 || ns <= 0) return;
  // Compared as ns per byte.
  const bool faster =
      moved_bytes_ == 0 || static_cast<double>(ns) * static_cast<double>(moved_bytes_) <
                               static_cast<double>(moved_ns_) * static_cast<double>(bytes);
  if (!faster) return;
  moved_bytes_ = bytes;
  moved_ns_ = ns;
}

std::vector<int64_t> Replanner::measured() const {
  std::vector<int64_t> values(kMeasures);
  values[kRows] = rows_;
  values[kCpuNs] = cpu_ns_;
  values[kMovedBytes] = static_cast<int64_t>(moved_bytes_);
  values[kMovedNs] = moved_ns_;
  return values;
}

ReplanChoice Replanner::decide(uint64_t step, std::span<const int64_t> measured,
                               const ComputePlacement& current, const ComputePlacement& next,
                               std::span<const int64_t> window) const {
  CKPT_ASSERT(measured.size() == kMeasures && step > begun_at_);
  ReplanChoice choice{.before = balance_of(current, window), .after = balance_of(next, window)};
  choice.bytes = experts_to_move(current, next) * options_.expert_bytes;
  const double tokens_less = choice.before.busiest_tokens - choice.after.busiest_tokens;
  const double ns_per_token = measured[kRows] > 0 ? over(measured[kCpuNs], measured[kRows]) : 0;
  const double ns_per_byte = measured[kMovedBytes] > 0
                                 ? over(measured[kMovedNs], measured[kMovedBytes])
                                 : kAssumedNsPerByte;
  const uint64_t ahead = std::min(options_.every, options_.steps - std::min(step, options_.steps));
  const double windows_ahead = static_cast<double>(ahead) / static_cast<double>(step - begun_at_);
  choice.gain_ms = tokens_less * ns_per_token * windows_ahead / kNsPerMs;
  choice.cost_ms = static_cast<double>(choice.bytes) * ns_per_byte / kNsPerMs;
  choice.moves = options_.if_better ? tokens_less > 0 : choice.gain_ms > choice.cost_ms;
  return choice;
}

}  // namespace moetrain
