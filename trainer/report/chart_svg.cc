// The loss curve as SVG: no scripts, no fonts or files from elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "trainer/report/curve.h"
#include "trainer/report/render.h"
#include "trainer/report/text.h"
#include "trainer/report/ticks.h"

namespace moetrain::report {
namespace {

constexpr double kLeft = 56;
constexpr double kRight = 24;
constexpr double kTop = 64;
constexpr double kBottom = 46;
constexpr double kPixelsPerXTick = 90;
constexpr double kPixelsPerYTick = 50;
constexpr double kTagHeight = 18;
constexpr double kTagGap = 4;
constexpr double kEndLabelWidth = 40;
// Mean width of a character of the 11 px sans-serif the tags use; only layout depends on it.
constexpr double kTagCharWidth = 5.9;

constexpr const char* kStyle = R"(<style>
text { font-family: "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: #3b4252; }
.title { font-size: 16px; font-weight: 600; fill: #1f2430; }
.subtitle { font-size: 12px; fill: #6b7280; }
.tick { font-size: 11px; fill: #6b7280; }
.tag { font-size: 11px; fill: #9f2d20; }
.end { font-size: 12px; font-weight: 600; fill: #1d4f91; }
.grid { stroke: #e5e7eb; stroke-width: 1; }
.axis { stroke: #9ca3af; stroke-width: 1; }
.loss { fill: none; stroke: #9dbfe8; stroke-width: 1.2; stroke-linejoin: round; }
.mean { fill: none; stroke: #1d4f91; stroke-width: 2.2; stroke-linejoin: round; }
.failure { stroke: #c0392b; stroke-width: 1.2; stroke-dasharray: 4 3; }
.redone { fill: #c0392b; fill-opacity: 0.10; }
.tagbox { fill: #fdf0ee; stroke: #e6b0aa; stroke-width: 0.8; }
</style>
)";

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        // Other control characters are not allowed in XML at all.
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

class SvgChart {
 public:
  SvgChart(const Report& report, const SvgOptions& options)
      : report_(report),
        options_(options),
        curve_(make_curve(report)),
        width_(std::max(options.width, 240)),
        height_(std::max(options.height, 160)) {}

  std::string draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n",
        width_, height_);
    out_ += fmt::format("<title>{}</title>\n", escape(options_.title));
    out_ += kStyle;
    out_ += fmt::format("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#fcfcfb\"/>\n", width_,
                        height_);
    text(kLeft - 36, 26, "title", "start", options_.title);
    text(kLeft - 36, 44, "subtitle", "start", subtitle());
    if (curve_.points.empty()) {
      text(width_ / 2, height_ / 2, "subtitle", "middle", "no finite loss to draw");
    } else {
      draw_axes();
      draw_redone();
      draw_curve();
      draw_failures();
    }
    return out_ + "</svg>\n";
  }

 private:
  double plot_width() const { return width_ - kLeft - kRight; }
  double plot_height() const { return height_ - kTop - kBottom; }
  double x_of(double x) const {
    const double share = (x - curve_.x_low) / (curve_.x_high - curve_.x_low);
    return kLeft + std::clamp(share, 0.0, 1.0) * plot_width();
  }
  double y_of(double y) const {
    return kTop + (curve_.y_high - y) / (curve_.y_high - curve_.y_low) * plot_height();
  }

  void text(double x, double y, const char* style, const char* anchor, std::string_view words) {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    style, x, y, anchor, escape(words));
  }
  void line(const char* style, double x0, double y0, double x1, double y1) {
    out_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x0,
        y0, x1, y1);
  }
  void rect(const char* style, double x, double y, double width, double height, double radius) {
    out_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"{:.0f}\"/>\n",
        style, x, y, width, height, radius);
  }
  void polyline(const char* style, const std::vector<Point>& points) {
    out_ += fmt::format("<polyline class=\"{}\" points=\"", style);
    for (size_t i = 0; i < points.size(); ++i) {
      out_ +=
          fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", x_of(points[i].x), y_of(points[i].y));
    }
    out_ += "\"/>\n";
  }

  std::string subtitle() const {
    std::string words = fmt::format("{} step{} of {} tokens on {} rank{}", report_.steps,
                                    report_.steps == 1 ? "" : "s", report_.tokens_per_step,
                                    report_.ranks, report_.ranks == 1 ? "" : "s");
    const size_t failures = report_.failures.size() + report_.daemon_failures.size();
    const size_t unsaved = report_.unsaved.size();
    if (failures == 0 && unsaved == 0) return words + ", no failures";
    if (failures > 0) words += fmt::format(", {} failure{}", failures, failures == 1 ? "" : "s");
    if (unsaved > 0) {
      words += fmt::format(", {} period{} without a checkpoint", unsaved, unsaved == 1 ? "" : "s");
    }
    return words;
  }

  void draw_axes() {
    const Ticks y_ticks = make_ticks(curve_.y_low, curve_.y_high,
                                     static_cast<int>(plot_height() / kPixelsPerYTick) + 1);
    for (const double value : y_ticks.values) {
      line("grid", kLeft, y_of(value), width_ - kRight, y_of(value));
      text(kLeft - 8, y_of(value) + 4, "tick", "end", tick_label(y_ticks, value));
    }
    const double floor = height_ - kBottom;
    line("axis", kLeft, floor, width_ - kRight, floor);
    const Ticks x_ticks = make_ticks(curve_.x_low, curve_.x_high,
                                     static_cast<int>(plot_width() / kPixelsPerXTick) + 1);
    for (const double value : x_ticks.values) {
      if (value != std::floor(value)) continue;  // there are no half steps
      line("axis", x_of(value), floor, x_of(value), floor + 4);
      text(x_of(value), floor + 17, "tick", "middle", fmt::format("{:.0f}", value));
    }
    text(kLeft + plot_width() / 2, height_ - 10, "subtitle", "middle", "step");
  }

  void draw_redone() {
    for (const Marker& marker : make_markers(report_)) {
      const double from = x_of(marker.redone_from);
      const double to = x_of(marker.x);
      if (to > from) rect("redone", from, kTop, to - from, plot_height(), 0);
    }
  }

  void draw_curve() {
    const int columns = static_cast<int>(plot_width());
    const size_t window = std::max<size_t>(curve_.points.size() / 20, 1) | 1U;  // odd
    polyline("loss", thin_out(curve_, curve_.points, columns));
    polyline("mean", thin_out(curve_, running_mean(curve_.points, window), columns));
    draw_last_loss();
  }

  // The dot is on the last point; its number stands clear of the curve before it.
  void draw_last_loss() {
    const Point& last = curve_.points.back();
    double top = y_of(last.y);
    for (auto point = curve_.points.rbegin(); point != curve_.points.rend(); ++point) {
      if (x_of(last.x) - x_of(point->x) > kEndLabelWidth) break;
      top = std::min(top, y_of(point->y));
    }
    out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"#1d4f91\"/>\n",
                        x_of(last.x), y_of(last.y));
    text(x_of(last.x), top - 9, "end", "end", fmt::format("{:.3f}", last.y));
  }

  // A failure's text, beside its line: right of it where there is room, else left, in the first
  // row in which it touches no other.
  struct Tag {
    double line_x;
    double begin;
    double end;
    int row;
    std::string label;
    double top() const { return kTop + 2 + row * (kTagHeight + kTagGap); }
  };
  std::vector<Tag> place_tags() const {
    std::vector<Tag> placed;
    for (Marker& marker : make_markers(report_)) {
      const double x = x_of(marker.x);
      const double width =
          std::min(display_width(marker.long_label) * kTagCharWidth + 12, plot_width());
      const bool fits_right = x + kTagGap + width <= width_ - kRight;
      const double begin = fits_right ? x + kTagGap : std::max(x - kTagGap - width, kLeft);
      Tag tag{x, begin, begin + width, 0, std::move(marker.long_label)};
      const auto touches = [&tag](const Tag& other) {
        return other.row == tag.row && tag.begin < other.end + kTagGap &&
               other.begin < tag.end + kTagGap;
      };
      while (std::any_of(placed.begin(), placed.end(), touches)) ++tag.row;
      placed.push_back(std::move(tag));
    }
    return placed;
  }

  // All lines before all tags: no line runs through the text of another failure.
  void draw_failures() {
    const std::vector<Tag> tags = place_tags();
    for (const Tag& tag : tags)
      line("failure", tag.line_x, tag.top(), tag.line_x, height_ - kBottom);
    for (const Tag& tag : tags) {
      rect("tagbox", tag.begin, tag.top(), tag.end - tag.begin, kTagHeight, 3);
      text(tag.begin + 6, tag.top() + 13, "tag", "start", tag.label);
    }
  }

  const Report& report_;
  const SvgOptions& options_;
  Curve curve_;
  double width_;
  double height_;
  std::string out_;
};

}  // namespace

std::string loss_chart_svg(const Report& report, const SvgOptions& options) {
  return SvgChart(report, options).draw();
}

}  // namespace moetrain::report
