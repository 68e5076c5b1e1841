// Placements as SVG: a column for each rank, a part for each slot, with axes, numbers and a legend.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trainer/placement/picture.h"

namespace moetrain {

namespace {

// All in pixels.
constexpr double kWidth = 960;
constexpr double kLeft = 76;         // axis, its numbers and its name
constexpr double kRight = 84;        // the mean
constexpr double kTitleHeight = 82;  // title and legend
constexpr double kHeadHeight = 30;   // "before" and the numbers above the columns
constexpr double kFootHeight = 52;   // ranks and the name of the axis
constexpr double kPlotHeight = 260;
constexpr double kAir = 1.05;  // above the highest column
constexpr double kNumberedColumnMin = 30;
constexpr double kNamedPartHeightMin = 11;
constexpr double kNamedPartWidthMin = 15;
constexpr size_t kRanksNumberedMax = 64;
constexpr int kAxisTicks = 5;

constexpr const char* kSubdued = "#6b7280";

// Golden angle: neighbours in number are far apart in colour. As #rrggbb, which every reader of SVG
// knows: hue, 55 % saturation, 62 % lightness.
std::string colour_of(uint32_t expert) {
  const double hue = std::fmod(expert * 137.508, 360.0) / 30;
  const auto channel = [hue](double offset) {
    constexpr double kLightness = 0.62;
    constexpr double kChroma = 0.55 * (1 - kLightness);
    const double k = std::fmod(offset + hue, 12);
    const double value = kLightness - kChroma * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}));
    return static_cast<int>(std::lround(value * 255));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

std::string text_at(double x, double y, const char* anchor, std::string_view words,
                    std::string_view more = "") {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, words);
}

std::string line_at(double x0, double y0, double x1, double y1, const char* style) {
  return fmt::format("<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" {}/>\n", x0, y0,
                     x1, y1, style);
}

// 1, 2 or 5 times a power of ten: about kAxisTicks of them up to `most`.
double tick_step(double most) {
  const double rough = most / kAxisTicks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

double highest(const LayerSlots& slots, const std::vector<uint64_t>& loads) {
  return std::ranges::max(rank_loads(slots, loads)) * kAir;
}

// One placement of a picture that may have two, on the same scale.
class Plot {
 public:
  Plot(const LayerSlots& slots, const std::vector<uint64_t>& loads, double top, double most)
      : slots_(slots),
        loads_(loads),
        ranks_(rank_loads(slots, loads)),
        mean_(std::accumulate(ranks_.begin(), ranks_.end(), 0.0) /
              static_cast<double>(ranks_.size())),
        even_(has_no_load(loads)),
        top_(top),
        floor_(top + kPlotHeight),
        most_(most),
        step_((kWidth - kLeft - kRight) / static_cast<double>(slots.size())) {}

  std::string draw() const { return axis() + columns() + mean_line(); }

 private:
  double y_of(double load) const { return floor_ - load / most_ * kPlotHeight; }
  double x_of(size_t rank) const { return kLeft + static_cast<double>(rank) * step_; }
  double middle_of(size_t rank) const { return x_of(rank) + 0.43 * step_; }

  std::string axis() const {
    std::string svg;
    const double every = tick_step(most_);
    for (int tick = 0; tick * every <= most_; ++tick) {
      const double y = y_of(tick * every);
      svg += line_at(kLeft, y, kWidth - kRight, y, "stroke=\"#e5e7eb\"");
      svg += text_at(kLeft - 6, y + 4, "end", fmt::format("{:.6g}", tick * every));
    }
    svg += line_at(kLeft, floor_ - kPlotHeight, kLeft, floor_, "stroke=\"#9ca3af\"");
    const double middle = top_ + kPlotHeight / 2;
    svg +=
        text_at(16, middle, "middle", even_ ? "experts (no tokens counted)" : "tokens",
                fmt::format(" transform=\"rotate(-90 16 {:.2f})\" fill=\"{}\"", middle, kSubdued));
    return svg + text_at((kLeft + kWidth - kRight) / 2, floor_ + 36, "middle", "rank",
                         fmt::format(" fill=\"{}\"", kSubdued));
  }

  std::string columns() const {
    std::vector<uint32_t> replicas(loads_.size());
    for (const auto& rank : slots_) {
      for (const uint32_t expert : rank) ++replicas[expert];
    }
    std::string svg;
    for (size_t rank = 0; rank < slots_.size(); ++rank) {
      double load = 0;
      for (const uint32_t expert : slots_[rank]) {
        const double share = (even_ ? 1.0 : static_cast<double>(loads_[expert])) / replicas[expert];
        load += share;
        svg += part(rank, expert, load, share);
      }
      svg += numbers(rank, load);
    }
    return svg;
  }

  std::string part(size_t rank, uint32_t expert, double top, double share) const {
    const double height = share / most_ * kPlotHeight;
    const double width = step_ * 0.86;
    std::string svg = fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
        "stroke=\"#ffffff\" stroke-width=\"0.5\"><title>rank {}, expert {}: {:.2f} of the "
        "mean</title></rect>\n",
        x_of(rank), y_of(top), width, height, colour_of(expert), rank, expert, share / mean_);
    if (height < kNamedPartHeightMin || width < kNamedPartWidthMin) return svg;
    return svg + text_at(middle_of(rank), y_of(top) + height / 2 + 4, "middle",
                         fmt::format("{}", expert), " class=\"expert\"");
  }

  // The rank's number below its column, and its load relative to the mean above it.
  std::string numbers(size_t rank, double load) const {
    const bool all = slots_.size() <= kRanksNumberedMax;
    std::string svg;
    if (all || rank % (slots_.size() / 16) == 0) {
      svg += text_at(middle_of(rank), floor_ + 16, "middle", fmt::format("{}", rank));
    }
    if (step_ < kNumberedColumnMin) return svg;
    return svg + text_at(middle_of(rank), y_of(load) - 4, "middle",
                         fmt::format("{:.2f}", load / mean_), " class=\"of-mean\"");
  }

  std::string mean_line() const {
    return line_at(kLeft, y_of(mean_), kWidth - kRight, y_of(mean_),
                   "stroke=\"#1f2430\" stroke-dasharray=\"5 4\"") +
           text_at(kWidth - kRight + 5, y_of(mean_) + 4, "start",
                   fmt::format("mean {:.6g}", mean_));
  }

  const LayerSlots& slots_;
  const std::vector<uint64_t>& loads_;
  const std::vector<double> ranks_;
  const double mean_;
  const bool even_;
  const double top_;
  const double floor_;
  const double most_;
  const double step_;
};

std::string svg_begin(double height, const std::string& title) {
  const double y = 46;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n",
      kWidth, height, kLeft, title);
  for (uint32_t expert = 0; expert < 3; ++expert) {
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                       kLeft + 12 * expert, y - 9, colour_of(expert));
  }
  svg += text_at(kLeft + 42, y, "start",
                 "a replica of an expert: its number, as high as its share of the expert's tokens");
  svg += line_at(kLeft, y + 14, kLeft + 34, y + 14, "stroke=\"#1f2430\" stroke-dasharray=\"5 4\"");
  return svg + text_at(kLeft + 42, y + 18, "start",
                       "mean of the ranks; above a column: its load as a part of the mean");
}

}  // namespace

std::string placement_svg(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                          const std::string& title) {
  const double top = kTitleHeight + kHeadHeight;
  return svg_begin(top + kPlotHeight + kFootHeight, title) +
         Plot(slots, loads, top, highest(slots, loads)).draw() + "</svg>\n";
}

std::string change_svg(const LayerChange& change, const std::string& title) {
  const double most =
      std::max(highest(change.before, change.loads), highest(change.after, change.loads));
  constexpr double kBlock = kHeadHeight + kPlotHeight + kFootHeight;
  std::string svg = svg_begin(kTitleHeight + 2 * kBlock, title);
  double top = kTitleHeight + kHeadHeight;
  for (const auto& [when, slots] :
       {std::pair("before", &change.before), {"after", &change.after}}) {
    svg += text_at(kLeft, top - 16, "start", when, " font-size=\"13\"");
    svg += Plot(*slots, change.loads, top, most).draw();
    top += kBlock;
  }
  return svg + "</svg>\n";
}

}  // namespace moetrain
