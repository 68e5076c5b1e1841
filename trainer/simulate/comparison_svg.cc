#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/report/ticks.h"
#include "trainer/simulate/render.h"

namespace moetrain::simulate {

namespace {

constexpr double kLeft = 62;
constexpr double kRight = 150;  // names of the policies
constexpr double kTop = 58;
constexpr double kBottom = 44;
constexpr double kNodesHeight = 70;
constexpr double kGap = 30;
constexpr size_t kBuckets = 160;

// Distinguishable without red and green (Okabe, Ito: Color Universal Design), ours the strongest.
constexpr std::array<std::string_view, 6> kColours = {"#8a8f98", "#56b4e9", "#009e73",
                                                      "#cc79a7", "#e69f00", "#0b3d91"};

constexpr std::string_view kStyle = R"(<style>
text { font-family: "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: #3b4252; }
.title { font-size: 16px; font-weight: 600; fill: #1f2430; }
.note { font-size: 12px; fill: #6b7280; }
.tick { font-size: 11px; fill: #6b7280; }
.name { font-size: 12px; }
.grid { stroke: #e5e7eb; stroke-width: 1; }
.axis { stroke: #9ca3af; stroke-width: 1; }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.nodes { fill: #d8dee9; stroke: #7b8494; stroke-width: 1; }
</style>
)";

// Escapes text for XML, such as a file name.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

class Chart {
 public:
  Chart(const Comparison& comparison, const ChartOptions& options)
      : comparison_(comparison),
        width_(std::max(options.width, 400.0)),
        height_(std::max(options.height, 320.0)),
        hours_(std::max(static_cast<double>(comparison.nodes.end) / kSecond / 3600, 1e-9)) {
    for (const PolicyResult& one : comparison.results) {
      curves_.push_back(goodput_curve(shown(one), comparison.nodes.end, kBuckets));
      for (const double value : curves_.back()) most_ = std::max(most_, value);
    }
    most_ = most_ > 0 ? most_ * 1.05 : 1;
  }

  std::string draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>Goodput over the trace</title>\n",
        width_, height_);
    out_ += kStyle;
    out_ += fmt::format("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#fcfcfb\"/>\n", width_,
                        height_);
    text(kLeft - 40, 24, "title", "start", "Goodput: " + comparison_.model);
    text(kLeft - 40, 42, "note", "start",
         fmt::format("samples/s that count in the end; {}, {} nodes{}", comparison_.trace,
                     comparison_.nodes.names.size(),
                     comparison_.with_best ? "; every policy at its best interval" : ""));
    axes();
    for (size_t i = 0; i < curves_.size(); ++i) curve(i);
    names();
    nodes();
    return out_ + "</svg>\n";
  }

 private:
  const Outcome& shown(const PolicyResult& one) const {
    return (comparison_.with_best ? one.best : one.given).outcome;
  }
  std::string_view colour(size_t i) const { return kColours[i % kColours.size()]; }
  double floor() const { return height_ - kBottom - kNodesHeight - kGap; }
  double x_of(double hours) const { return kLeft + hours / hours_ * (width_ - kLeft - kRight); }
  double y_of(double value) const { return floor() - value / most_ * (floor() - kTop); }

  void text(double x, double y, std::string_view style, std::string_view anchor,
            std::string_view words) {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    style, x, y, anchor, escaped(words));
  }
  void line(std::string_view style, double x0, double y0, double x1, double y1) {
    out_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x0,
        y0, x1, y1);
  }

  void axes() {
    const report::Ticks y = report::make_ticks(0, most_, 6);
    for (const double value : y.values) {
      line("grid", kLeft, y_of(value), width_ - kRight, y_of(value));
      text(kLeft - 8, y_of(value) + 4, "tick", "end", report::tick_label(y, value));
    }
    line("axis", kLeft, floor(), width_ - kRight, floor());
    const double bottom = height_ - kBottom;
    const bool minutes = hours_ < 2;
    const report::Ticks x = report::make_ticks(0, minutes ? hours_ * 60 : hours_, 10);
    for (const double value : x.values) {
      const double at = x_of(minutes ? value / 60 : value);
      line("axis", at, bottom, at, bottom + 4);
      text(at, bottom + 16, "tick", "middle", report::tick_label(x, value));
    }
    text((kLeft + width_ - kRight) / 2, height_ - 10, "note", "middle",
         minutes ? "minutes" : "hours");
  }

  void curve(size_t i) {
    out_ += fmt::format("<polyline class=\"curve\" stroke=\"{}\" points=\"", colour(i));
    const std::vector<double>& values = curves_[i];
    for (size_t bucket = 0; bucket < values.size(); ++bucket) {
      const double at = (static_cast<double>(bucket) + 0.5) / static_cast<double>(values.size());
      out_ += fmt::format("{}{:.1f},{:.1f}", bucket == 0 ? "" : " ", x_of(at * hours_),
                          y_of(values[bucket]));
    }
    out_ += "\"/>\n";
  }

  // The policies by their mean over the trace, the best first.
  void names() {
    std::vector<size_t> order(comparison_.results.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, [&](size_t a, size_t b) {
      const double left = shown(comparison_.results[a]).goodput();
      const double right = shown(comparison_.results[b]).goodput();
      return left != right ? left > right : a < b;
    });
    double y = kTop + 10;
    for (const size_t i : order) {
      const double x = width_ - kRight + 14;
      out_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"{3}\" "
          "stroke-width=\"3\"/>\n",
          x, y - 4, x + 16, colour(i));
      text(x + 22, y, "name", "start",
           fmt::format("{}  {:.4g}", comparison_.results[i].system->name,
                       shown(comparison_.results[i]).goodput()));
      y += 20;
    }
  }

  void nodes() {
    std::vector<std::pair<double, double>> corners{{0, 0}};
    double there = 0;
    double most = 1;
    for (const NodeEvent& event : comparison_.nodes.events) {
      if (event.at > comparison_.nodes.end) break;
      const double at = static_cast<double>(event.at) / kSecond / 3600;
      corners.emplace_back(at, there);
      there += event.add ? 1 : -1;
      corners.emplace_back(at, there);
      most = std::max(most, there);
    }
    corners.emplace_back(hours_, there);
    const double bottom = height_ - kBottom;
    out_ += fmt::format("<polygon class=\"nodes\" points=\"{:.1f},{:.1f}", kLeft, bottom);
    for (const auto& [at, count] : corners) {
      out_ += fmt::format(" {:.1f},{:.1f}", x_of(at), bottom - count / most * kNodesHeight);
    }
    out_ += fmt::format(" {:.1f},{:.1f}\"/>\n", x_of(hours_), bottom);
    text(kLeft - 8, bottom - kNodesHeight + 9, "tick", "end", fmt::format("{:.0f}", most));
    text(kLeft - 8, bottom, "tick", "end", "0");
    text(width_ - kRight + 14, bottom - kNodesHeight / 2, "note", "start", "nodes");
  }

  const Comparison& comparison_;
  double width_, height_, hours_;
  double most_ = 0;
  std::vector<std::vector<double>> curves_;
  std::string out_;
};

// Samples up to `at`, on the straight line between two points.
double samples_at(const std::vector<CurvePoint>& curve, Micros at) {
  const auto after = std::ranges::upper_bound(curve, at, {}, &CurvePoint::at);
  if (after == curve.begin()) return 0;
  const CurvePoint& left = *(after - 1);
  if (after == curve.end()) return left.samples;
  const double part = static_cast<double>(at - left.at) / static_cast<double>(after->at - left.at);
  return left.samples + part * (after->samples - left.samples);
}

}  // namespace

std::vector<double> goodput_curve(const Outcome& outcome, Micros end, size_t buckets) {
  std::vector<double> values(buckets, 0);
  const double seconds = static_cast<double>(end) / kSecond / static_cast<double>(buckets);
  double before = 0;
  for (size_t bucket = 0; bucket < buckets && end > 0; ++bucket) {
    const auto at = static_cast<Micros>(static_cast<double>(end) * static_cast<double>(bucket + 1) /
                                        static_cast<double>(buckets));
    const double samples = samples_at(outcome.curve, at);
    values[bucket] = (samples - before) / seconds;
    before = samples;
  }
  return values;
}

std::string comparison_svg(const Comparison& comparison, const ChartOptions& options) {
  return Chart(comparison, options).draw();
}

}  // namespace moetrain::simulate
