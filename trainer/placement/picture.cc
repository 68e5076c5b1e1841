#include "trainer/placement/picture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace moetrain {

namespace {

constexpr int kBarCellsMin = 12;
constexpr size_t kSlotsShown = 12;  // of a rank, in text
constexpr size_t kFailuresShown = 8;

double mean_of(const std::vector<double>& loads) {
  return std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
}

// Filled up to the load, with a mark where the mean is.
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

// Columns of a placement in an SVG document: where they stand, and how many tokens are a pixel.
struct Columns {
  double top = 0;
  double floor = 0;
  double most = 0;  // tokens, from floor to top
};
constexpr double kWidth = 960;
constexpr double kLeft = 48;
constexpr double kTitleHeight = 44;
constexpr double kNumbersHeight = 36;
constexpr double kPlotHeight = 280;
constexpr double kAir = 1.05;  // above the highest column

double highest(const LayerSlots& slots, const std::vector<uint64_t>& loads) {
  return std::ranges::max(rank_loads(slots, loads)) * kAir;
}

std::string svg_begin(double height, const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n",
      kWidth, height, kLeft, title);
}

std::string svg_columns(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                        const Columns& columns) {
  const double mean = mean_of(rank_loads(slots, loads));
  const double scale = (columns.floor - columns.top) / columns.most;
  const double step = (kWidth - kLeft - 16) / static_cast<double>(slots.size());
  std::vector<uint32_t> replicas(loads.size());
  for (const auto& rank : slots) {
    for (const uint32_t expert : rank) ++replicas[expert];
  }
  const bool even = std::ranges::all_of(loads, [](uint64_t load) { return load == 0; });
  std::string svg;
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    double y = columns.floor;
    for (const uint32_t expert : slots[rank]) {
      const double share = (even ? 1.0 : static_cast<double>(loads[expert])) / replicas[expert];
      y -= share * scale;
      // Golden angle: neighbours in number are far apart in colour.
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
          "fill=\"hsl({:.0f},55%,62%)\" stroke=\"#ffffff\" stroke-width=\"0.5\"><title>rank {}, "
          "expert {}: {:.2f} of the mean</title></rect>\n",
          kLeft + static_cast<double>(rank) * step, y, step * 0.86, share * scale,
          std::fmod(expert * 137.508, 360.0), rank, expert, share / mean);
    }
    if (slots.size() > 64 && rank % (slots.size() / 16) != 0) continue;
    svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + (static_cast<double>(rank) + 0.43) * step, columns.floor + 16, rank);
  }
  const double line = columns.floor - mean * scale;
  return svg + fmt::format(
                   "<line x1=\"{}\" x2=\"{}\" y1=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"#1f2430\" "
                   "stroke-dasharray=\"5 4\"/>\n<text x=\"4\" y=\"{:.2f}\">mean</text>\n",
                   kLeft, kWidth - 16, line, line, line + 4);
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
  const int taken = 11 + static_cast<int>(slots_width) + 7;
  const int cells = std::max(kBarCellsMin, options.columns - taken);
  std::string text;
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
    // Of the judgement a picture needs the loads of ranks, and how many experts there are.
    const LayerJudgement loads{.replicas = std::vector<uint32_t>(change.loads.size()),
                               .rank_loads = rank_loads(slots, change.loads)};
    return fmt::format("{}:\n{}", when, placement_picture(slots, loads, same_scale));
  };
  return picture("before", change.before) + picture("after", change.after);
}

std::string placement_svg(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                          const std::string& title) {
  const double floor = kTitleHeight + kPlotHeight;
  return svg_begin(floor + kNumbersHeight, title) +
         svg_columns(slots, loads,
                     {.top = kTitleHeight, .floor = floor, .most = highest(slots, loads)}) +
         "</svg>\n";
}

std::string change_svg(const LayerChange& change, const std::string& title) {
  const double most =
      std::max(highest(change.before, change.loads), highest(change.after, change.loads));
  std::string svg = svg_begin(2 * (kTitleHeight + kPlotHeight + kNumbersHeight), title);
  double top = kTitleHeight;
  for (const auto& [when, slots] :
       {std::pair("before", &change.before), {"after", &change.after}}) {
    svg +=
        fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"13\">{}</text>\n", kLeft, top + 12, when);
    svg += svg_columns(*slots, change.loads,
                       {.top = top + 16, .floor = top + kPlotHeight, .most = most});
    top += kPlotHeight + kNumbersHeight + kTitleHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace moetrain
