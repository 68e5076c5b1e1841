// The loss curve in the terminal:
//
//   5.0 ┤⠣⡀
//       │ ⠑⢄⡀   ┊
//   4.5 ┤   ⠉⠒⠤⣀┊⣀⡀
//       └┬─────┬─────┬
//        0    10    20   step
//               ▲ rank 2 lost, back in 2.1 s, 3 steps redone
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/report/canvas.h"
#include "trainer/report/curve.h"
#include "trainer/report/render.h"
#include "trainer/report/text.h"
#include "trainer/report/ticks.h"

namespace moetrain::report {
namespace {

constexpr int kColumnsMin = 30;
constexpr int kRowsMin = 4;
constexpr int kColumnsPerTick = 10;
constexpr int kRowsPerTick = 3;
constexpr const char* kStepLabel = "step";  // in the margin, before the axis numbers

// The characters of one style, and the colours (empty without).
struct ChartStyle {
  const char* tick_left = "\u2524";
  const char* side = "\u2502";
  const char* corner = "\u2514";
  const char* floor = "\u2500";
  const char* tick_down = "\u252c";
  const char* failure_line = "\u250a";
  const char* failure_mark = "\u25b2";
  const char* curve_color = "";
  const char* failure_color = "";
  const char* reset = "";
};

ChartStyle make_style(const ChartOptions& options) {
  ChartStyle style;
  if (!options.unicode) {
    style = {.tick_left = "+",
             .side = "|",
             .corner = "+",
             .floor = "-",
             .tick_down = "+",
             .failure_line = ":",
             .failure_mark = "^"};
  }
  if (options.color) {
    style.curve_color = "\x1b[36m";
    style.failure_color = "\x1b[31m";
    style.reset = "\x1b[0m";
  }
  return style;
}

// Maps values to the canvas.
struct Scale {
  const Curve& curve;
  int dot_columns;
  int dot_rows;
  int dot_x(double x) const {
    return dot((x - curve.x_low) / (curve.x_high - curve.x_low), dot_columns);
  }
  int dot_y(double y) const {
    return dot((curve.y_high - y) / (curve.y_high - curve.y_low), dot_rows);
  }
  // Clamps far outliers to the edge; the canvas clips values a little outside.
  static int dot(double share, int dots) {
    return static_cast<int>(std::lround(std::clamp(share, -1.0, 2.0) * (dots - 1)));
  }
};

class TextChart {
 public:
  TextChart(const Report& report, const ChartOptions& options)
      : curve_(make_curve(report)),
        markers_(make_markers(report)),
        style_(make_style(options)),
        rows_(std::max(options.rows, kRowsMin)),
        y_ticks_(make_ticks(curve_.y_low, curve_.y_high, std::max(rows_ / kRowsPerTick, 2))),
        margin_(std::max(widest_label() + 1, display_width(kStepLabel) + 1)),
        plot_columns_(std::max(options.columns, kColumnsMin) - margin_ - 1),
        canvas_(plot_columns_, rows_, options.unicode),
        scale_{curve_, canvas_.dot_columns(), canvas_.dot_rows()} {}

  std::string draw() {
    draw_curve();
    draw_failure_lines();
    std::string text;
    for (int row = 0; row < rows_; ++row) {
      const std::string label = y_label(row);
      text += fmt::format("{:>{}}", label, margin_ - 1) + " ";
      text += label.empty() ? style_.side : style_.tick_left;
      text += colored_row(row) + "\n";
    }
    return text + x_axis() + failure_lines();
  }

 private:
  int widest_label() const {
    int widest = 0;
    for (const double value : y_ticks_.values) {
      widest = std::max(widest, display_width(tick_label(y_ticks_, value)));
    }
    return widest;
  }

  int row_of(double y) const { return scale_.dot_y(y) * rows_ / canvas_.dot_rows(); }
  int column_of(double x) const {
    return std::clamp(scale_.dot_x(x) * plot_columns_ / canvas_.dot_columns(), 0,
                      plot_columns_ - 1);
  }

  std::string y_label(int row) const {
    for (const double value : y_ticks_.values) {
      if (row_of(value) == row) return tick_label(y_ticks_, value);
    }
    return {};
  }

  void draw_curve() {
    const auto points = thin_out(curve_, curve_.points, canvas_.dot_columns());
    for (size_t i = 0; i < points.size(); ++i) {
      const Point& from = points[i == 0 ? 0 : i - 1];
      canvas_.line(scale_.dot_x(from.x), scale_.dot_y(from.y), scale_.dot_x(points[i].x),
                   scale_.dot_y(points[i].y));
    }
  }

  // Only beside the curve, which must stay readable.
  void draw_failure_lines() {
    for (const Marker& marker : markers_) {
      const int column = column_of(marker.x);
      for (int row = 0; row < rows_; ++row) {
        if (canvas_.empty(column, row)) canvas_.text(column, row, style_.failure_line);
      }
    }
  }

  std::string colored_row(int row) const {
    std::string plain = canvas_.row_text(row);
    while (!plain.empty() && plain.back() == ' ') plain.pop_back();
    if (*style_.reset == '\0' || plain.empty()) return plain;
    const std::string line = style_.failure_line;
    std::string colored = style_.curve_color;
    for (size_t at = 0; at < plain.size();) {
      const size_t next = std::min(plain.find(line, at), plain.size());
      colored += plain.substr(at, next - at);
      if (next == plain.size()) break;
      colored += style_.failure_color + line + style_.curve_color;
      at = next + line.size();
    }
    return colored + style_.reset;
  }

  std::string x_axis() const {
    const Ticks ticks =
        make_ticks(curve_.x_low, curve_.x_high, std::max(plot_columns_ / kColumnsPerTick, 2));
    std::vector<bool> has_tick(static_cast<size_t>(plot_columns_), false);
    std::string labels = kStepLabel;
    for (const double value : ticks.values) {
      if (value != std::floor(value)) continue;  // there are no half steps
      const int column = column_of(value);
      has_tick[static_cast<size_t>(column)] = true;
      const std::string label = fmt::format("{:.0f}", value);
      const int begin = margin_ + 1 + column - static_cast<int>(label.size()) / 2;
      if (begin <= static_cast<int>(labels.size())) continue;
      labels.append(static_cast<size_t>(begin) - labels.size(), ' ');
      labels += label;
    }
    std::string axis(static_cast<size_t>(margin_), ' ');
    axis += style_.corner;
    for (const bool tick : has_tick) axis += tick ? style_.tick_down : style_.floor;
    return axis + "\n" + labels + "\n";
  }

  // One line per failure under the axis, with its mark below its step; the text is on the wider
  // side.
  std::string failure_lines() const {
    std::string text;
    for (const Marker& marker : markers_) {
      const int column = margin_ + 1 + column_of(marker.x);
      const int right = margin_ + 1 + plot_columns_ - column - 2;
      const int left = column - 1;
      std::string line;
      const int width = display_width(marker.long_label);
      if (width <= right || right >= left) {
        line.assign(static_cast<size_t>(column), ' ');
        line += std::string(style_.failure_mark) + " " + clip(marker.long_label, right);
      } else {
        const std::string label = clip(marker.long_label, left);
        line.assign(static_cast<size_t>(left - display_width(label)), ' ');
        line += label + " " + style_.failure_mark;
      }
      text += style_.failure_color + line + style_.reset + "\n";
    }
    return text;
  }

  Curve curve_;
  std::vector<Marker> markers_;
  ChartStyle style_;
  int rows_;
  Ticks y_ticks_;
  int margin_;
  int plot_columns_;
  Canvas canvas_;
  Scale scale_;
};

}  // namespace

std::string loss_chart_text(const Report& report, const ChartOptions& options) {
  if (make_curve(report).points.empty()) return "no finite loss to draw\n";
  return TextChart(report, options).draw();
}

}  // namespace moetrain::report
