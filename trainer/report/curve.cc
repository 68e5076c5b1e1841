#include "trainer/report/curve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "trainer/report/render.h"

namespace moetrain::report {
namespace {

// Air above and below the curve, as a share of its height.
constexpr double kAir = 0.05;

}  // namespace

Curve make_curve(const Report& report) {
  Curve curve;
  for (const LossPoint& point : report.losses) {
    if (!std::isfinite(point.loss)) continue;
    curve.points.push_back({.x = static_cast<double>(point.step), .y = point.loss});
  }
  if (curve.points.empty()) return curve;
  const auto [lowest, highest] =
      std::minmax_element(curve.points.begin(), curve.points.end(),
                          [](const Point& a, const Point& b) { return a.y < b.y; });
  curve.x_low = curve.points.front().x;
  curve.x_high = std::max(curve.points.back().x, curve.x_low + 1);
  const double height = highest->y - lowest->y;
  const double air = height > 0 ? height * kAir : std::max(std::abs(highest->y) * kAir, 0.5);
  curve.y_low = lowest->y - air;
  curve.y_high = highest->y + air;
  return curve;
}

std::vector<Point> running_mean(const std::vector<Point>& points, size_t window) {
  std::vector<Point> means;
  if (window == 0 || points.size() < window) return means;
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    sum += points[i].y;
    if (i + 1 < window) continue;
    means.push_back({points[i - window / 2].x, sum / static_cast<double>(window)});
    sum -= points[i + 1 - window].y;
  }
  return means;
}

std::vector<Point> thin_out(const Curve& curve, const std::vector<Point>& points, int columns) {
  const double width = (curve.x_high - curve.x_low) / std::max(columns, 1);
  const auto column_of = [&](const Point& point) {
    return std::floor((point.x - curve.x_low) / width);
  };
  std::vector<Point> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin;
    size_t low = begin;
    size_t high = begin;
    for (; end < points.size() && column_of(points[end]) == column_of(points[begin]); ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
    begin = end;
  }
  return kept;
}

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  if (ranks.empty()) return "the group";  // no rank died: a peer did not answer in time
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::vector<Marker> make_markers(const Report& report) {
  std::vector<Marker> markers;
  for (const Failure& failure : report.failures) {
    const auto x = static_cast<double>(failure.display_step());
    const std::string lost_ranks = ranks_text(failure.ranks);
    // Survivors continue without the lost rank: only a restart brings it back.
    const char* after = failure.group != 0 ? "the others train on after" : "back in";
    std::string label = failure.resumed_ms ? fmt::format("{} lost, {} {}", lost_ranks, after,
                                                         human_ms(*failure.resumed_ms))
                                           : fmt::format("{} lost, not back", lost_ranks);
    if (failure.steps_lost > 0) {
      label +=
          fmt::format(", {} step{} redone", failure.steps_lost, failure.steps_lost == 1 ? "" : "s");
    }
    markers.push_back(
        {.x = x,
         .redone_from = static_cast<double>(failure.step) - static_cast<double>(failure.steps_lost),
         .short_label = lost_ranks,
         .long_label = std::move(label)});
  }
  for (const DaemonFailure& failure : report.daemon_failures) {
    const auto x = static_cast<double>(failure.step);
    markers.push_back({.x = x,
                       .redone_from = x,
                       .short_label = "ckptd",
                       .long_label = failure.down_ms ? fmt::format("ckptd lost, back in {}",
                                                                   human_ms(*failure.down_ms))
                                                     : "ckptd lost, not back"});
  }
  std::stable_sort(markers.begin(), markers.end(),
                   [](const Marker& a, const Marker& b) { return a.x < b.x; });
  return markers;
}

}  // namespace moetrain::report
