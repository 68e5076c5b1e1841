// Curve: the points that both charts draw, taken from a report. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/report.h"

namespace moetrain::report {

struct Point {
  double x = 0;  // step
  double y = 0;  // loss
};

// The finite losses and the box around them. Empty if no loss is finite.
struct Curve {
  std::vector<Point> points;  // ascending by x
  double x_low = 0;
  double x_high = 1;  // > x_low
  double y_low = 0;
  double y_high = 1;  // > y_low, a little air included
};
Curve make_curve(const Report& report);

// The mean of each point and its neighbours, `window` points in all (odd, so that the curve is not
// shifted). Points too near to an end have none.
std::vector<Point> running_mean(const std::vector<Point>& points, size_t window);

// At most two points, lowest and highest, in each of `columns` equal parts of [x_low, x_high], in
// their order: looks the same at that width, whatever the number of steps.
std::vector<Point> thin_out(const Curve& curve, const std::vector<Point>& points, int columns);

// A failure as a place on the x axis.
struct Marker {
  double x = 0;             // the last completed step
  double redone_from = 0;   // == x if nothing was done again
  std::string short_label;  // "rank 2"
  std::string long_label;   // "rank 2 lost, back in 2.1 s, 3 steps redone"
};
std::vector<Marker> make_markers(const Report& report);  // ascending by x

// "rank 2", "ranks 1, 3"
std::string ranks_text(const std::vector<uint32_t>& ranks);

}  // namespace moetrain::report
