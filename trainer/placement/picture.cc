#include "trainer/placement/picture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moetrain {

namespace {

constexpr int kBarCellsMin = 12;
constexpr size_t kSlotsShown = 12;  // of a rank, in text
constexpr std::string_view kSlotsTitle = "experts";
constexpr size_t kFailuresShown = 8;

double mean_of(const std::vector<double>& loads) {
  return std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
}

// A bar as long as the load, with a mark at the mean.
std::string bar(double load, double mean, double most, int cells, bool unicode) {
  const auto cell = [&](double value) {
    return std::min(cells - 1, static_cast<int>(value / most * cells));
  };
  const int filled = static_cast<int>(std::lround(load / most * cells));
  std::string text;
  for (int i = 0; i < cells; ++i) {
    if (i == cell(mean)) {
      text += unicode ? "┃" : "|";
    } else if (i < filled) {
      text += unicode ? "█" : "#";
    } else {
      text += unicode ? "·" : ".";
    }
  }
  return text;
}

// Legend of the bars and the mark, shortened to the available width.
std::string shortened_legend(double mean, int cells, bool unicode) {
  const std::string mark = unicode ? "\u2503" : "|";
  for (const std::string& legend :
       {fmt::format("tokens; {} mean {:.6g}", mark, mean), fmt::format("{} mean", mark)}) {
    const int columns = static_cast<int>(legend.size() - (mark.size() - 1));
    if (columns <= cells) return legend + std::string(static_cast<size_t>(cells - columns), ' ');
  }
  return std::string(static_cast<size_t>(cells), ' ');
}

std::string slots_text(const std::vector<uint32_t>& slots, size_t width) {
  std::string text;
  for (size_t i = 0; i < std::min(slots.size(), kSlotsShown); ++i) {
    text += fmt::format("{:>{}} ", slots[i], width);
  }
  if (slots.size() > kSlotsShown) text += fmt::format("+{} ", slots.size() - kSlotsShown);
  return text;
}

std::string recovery_text(const Judgement& judgement) {
  std::string text = "recovery ";
  const size_t shown = std::min(judgement.recovery.size(), kFailuresShown);
  for (size_t i = 0; i < shown; ++i) {
    const RecoveryAt& at = judgement.recovery[i];
    text += fmt::format(" {}: {:.4f}", at.failed, at.probability);
    if (at.error > 0) text += fmt::format(" +- {:.4f}", at.error);
  }
  if (judgement.recovery.empty()) text += " nobody is left after a failure";
  if (shown < judgement.recovery.size()) text += " ...";
  return text + "\n";
}

}  // namespace

std::string judgement_text(const Judgement& judgement, const PlacementRequest& request) {
  std::string text = fmt::format("max/mean  {:.4f}", judgement.max_over_mean);
  if (judgement.layers.size() > 1) {
    text +=
        fmt::format(" (mean of {} layers), {:.4f} in the worst, layer {}", judgement.layers.size(),
                    judgement.max_over_mean_worst, judgement.worst_layer);
  }
  text += "\n" + recovery_text(judgement);
  if (!request.current.empty()) {
    text += fmt::format("to move   {} replicas\n", judgement.replicas_to_move);
  }
  if (judgement.layers.size() == 1) return text;
  text += "\nlayer  max/mean  replicas of an expert  fewest domains\n";
  for (size_t layer = 0; layer < judgement.layers.size(); ++layer) {
    const LayerJudgement& one = judgement.layers[layer];
    text += fmt::format(
        "{:5}  {:8.4f}  {:>21}  {:14}\n", layer, one.max_over_mean,
        fmt::format("{} to {}", std::ranges::min(one.replicas), std::ranges::max(one.replicas)),
        one.domains_min);
  }
  return text;
}

std::string placement_picture(const LayerSlots& slots, const LayerJudgement& judgement,
                              const PictureOptions& options) {
  const double mean = mean_of(judgement.rank_loads);
  const double most = std::max({std::ranges::max(judgement.rank_loads), mean, options.full_bar});
  std::vector<uint32_t> ranks(slots.size());
  std::iota(ranks.begin(), ranks.end(), 0u);
  if (ranks.size() > options.ranks_max) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](uint32_t a, uint32_t b) {
      return judgement.rank_loads[a] > judgement.rank_loads[b];
    });
    ranks.resize(options.ranks_max);
    std::ranges::sort(ranks);
  }
  const size_t digits = fmt::format("{}", judgement.replicas.size() - 1).size();
  size_t slots_width = 0;
  for (const uint32_t rank : ranks) {
    slots_width = std::max(slots_width, slots_text(slots[rank], digits).size());
  }
  slots_width = std::max(slots_width, kSlotsTitle.size());
  const int taken = 11 + static_cast<int>(slots_width) + 7;
  const int cells = std::max(kBarCellsMin, options.columns - taken);
  std::string text = fmt::format("{:>9}  {:<{}} {} {}\n", "rank", kSlotsTitle, slots_width,
                                 shortened_legend(mean, cells, options.unicode), "of mean");
  for (const uint32_t rank : ranks) {
    const double load = judgement.rank_loads[rank];
    text += fmt::format("rank {:>4}  {:<{}} {} {:.2f}\n", rank, slots_text(slots[rank], digits),
                        slots_width, bar(load, mean, most, cells, options.unicode), load / mean);
  }
  if (ranks.size() < slots.size()) {
    text += fmt::format("the {} most loaded of {} ranks\n", ranks.size(), slots.size());
  }
  return text;
}

std::string change_picture(const LayerChange& change, const PictureOptions& options) {
  PictureOptions same_scale = options;
  same_scale.full_bar = std::max(std::ranges::max(rank_loads(change.before, change.loads)),
                                 std::ranges::max(rank_loads(change.after, change.loads)));
  const auto picture = [&](const char* when, const LayerSlots& slots) {
    // A picture uses only the loads of ranks and the number of experts of a judgement.
    const LayerJudgement loads{.replicas = std::vector<uint32_t>(change.loads.size()),
                               .rank_loads = rank_loads(slots, change.loads)};
    return fmt::format("{}:\n{}", when, placement_picture(slots, loads, same_scale));
  };
  return picture("before", change.before) + picture("after", change.after);
}

}  // namespace moetrain
