#include "trainer/partial/plt.h"

#include <numeric>

#include "formats/base/assert.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

int64_t layer_sum(const ExpertGrid& grid, std::span<const int64_t> counts, uint32_t layer) {
  const auto of_layer = counts.subspan(grid.at(layer, 0), grid.experts);
  return std::accumulate(of_layer.begin(), of_layer.end(), int64_t{0});
}

std::string name_of(const ExpertGrid& grid, size_t expert) {
  return fmt::format("layers.{}.experts.{}", expert / grid.experts, expert % grid.experts);
}

Status check_lost(const ExpertGrid& grid, const std::vector<int64_t>& lost, const char* kind) {
  if (lost.size() != grid.size()) {
    return make_error(ErrorCode::kInvalidArgument, "lost tokens ({}): {} counts for {} experts",
                      kind, lost.size(), grid.size());
  }
  for (size_t i = 0; i < lost.size(); ++i) {
    if (lost[i] >= 0) continue;
    return make_error(ErrorCode::kInvalidArgument, "lost tokens ({}) of {}: {}", kind,
                      name_of(grid, i), lost[i]);
  }
  return {};
}

}  // namespace

Status check_routing(const ExpertGrid& grid, std::span<const int64_t> routed, int64_t assignments) {
  if (routed.size() != grid.size()) {
    return make_error(ErrorCode::kInvalidArgument, "routing: {} counts for {} layers of {} experts",
                      routed.size(), grid.layers, grid.experts);
  }
  for (uint32_t layer = 0; layer < grid.layers; ++layer) {
    int64_t left = assignments;
    for (uint32_t expert = 0; expert < grid.experts; ++expert) {
      const int64_t count = routed[grid.at(layer, expert)];
      if (count < 0 || count > left) {
        return make_error(ErrorCode::kInvalidArgument,
                          "routing: layer {} expert {} has {} of {} assignments, {} are left",
                          layer, expert, count, assignments, left);
      }
      left -= count;
    }
    if (left == 0) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "routing: the counts of layer {} sum to {}, not to the {} assignments of its"
                      " tokens",
                      layer, assignments - left, assignments);
  }
  return {};
}

PltMeter::PltMeter(const ExpertGrid& grid)
    : grid_(grid), lost_{std::vector<int64_t>(grid.size()), std::vector<int64_t>(grid.size())} {}

Result<PltMeter> PltMeter::resume(const ExpertGrid& grid, Lost lost,
                                  std::span<const int64_t> routed) {
  CKPT_ASSERT(routed.size() == grid.size());
  CKPT_TRY(check_lost(grid, lost.restart, "restart"));
  CKPT_TRY(check_lost(grid, lost.rollback, "rollback"));
  for (size_t i = 0; i < grid.size(); ++i) {
    // No sum of numbers that came from outside: it could wrap around.
    if (lost.restart[i] <= routed[i] && lost.rollback[i] <= routed[i] - lost.restart[i]) continue;
    return make_error(ErrorCode::kInvalidArgument, "{} lost {} and {} of its {} tokens",
                      name_of(grid, i), lost.restart[i], lost.rollback[i], routed[i]);
  }
  PltMeter meter(grid);
  meter.lost_ = std::move(lost);
  return meter;
}

Status PltMeter::check_version(size_t expert, std::span<const int64_t> routed,
                               int64_t held_by_version) const {
  const int64_t expected = held(expert, routed);
  if (held_by_version >= 0 && held_by_version <= expected) return {};
  return make_error(ErrorCode::kCorrupt,
                    "{}: its version holds the updates of {} tokens, its state only had {}",
                    name_of(grid_, expert), held_by_version, expected);
}

Result<int64_t> PltMeter::restarted(std::span<const int64_t> routed,
                                    std::span<const int64_t> held_by_versions) {
  CKPT_ASSERT(routed.size() == grid_.size() && held_by_versions.size() == grid_.size());
  for (size_t i = 0; i < grid_.size(); ++i) {
    CKPT_TRY(check_version(i, routed, held_by_versions[i]));
  }
  int64_t lost = 0;
  for (size_t i = 0; i < grid_.size(); ++i) {
    const int64_t here = held(i, routed) - held_by_versions[i];
    lost_.restart[i] += here;
    lost += here;
  }
  return lost;
}

Result<int64_t> PltMeter::rolled_back(size_t expert, std::span<const int64_t> routed,
                                      int64_t held_by_version) {
  CKPT_ASSERT(routed.size() == grid_.size() && expert < grid_.size());
  CKPT_TRY(check_version(expert, routed, held_by_version));
  const int64_t lost = held(expert, routed) - held_by_version;
  lost_.rollback[expert] += lost;
  return lost;
}

double PltMeter::plt(std::span<const int64_t> routed) const {
  return plt_restart(routed) + plt_rollback(routed);
}

double PltMeter::plt_restart(std::span<const int64_t> routed) const {
  return lost_proportion(grid_, lost_.restart, routed);
}

double PltMeter::plt_rollback(std::span<const int64_t> routed) const {
  return lost_proportion(grid_, lost_.rollback, routed);
}

double lost_proportion(const ExpertGrid& grid, std::span<const int64_t> lost,
                       std::span<const int64_t> routed) {
  CKPT_ASSERT(lost.size() == grid.size() && routed.size() == grid.size());
  double sum = 0;
  for (uint32_t layer = 0; layer < grid.layers; ++layer) {
    const int64_t assignments = layer_sum(grid, routed, layer);
    if (assignments == 0) continue;
    sum += static_cast<double>(layer_sum(grid, lost, layer)) / static_cast<double>(assignments);
  }
  return grid.layers == 0 ? 0 : sum / grid.layers;
}

}  // namespace moetrain
