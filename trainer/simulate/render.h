// A comparison as text for people and scripts. Pure: values in, text out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/simulate/study.h"

namespace moetrain::simulate {

struct Comparison {
  std::string model;  // names, for people
  std::string trace;
  const NodeTrace& nodes;
  const std::vector<PolicyResult>& results;
  bool with_best = false;
  const std::vector<Varied>& varied;  // may be empty
};

// A row for each policy: interval, goodput, of ideal, ETTR, shares of time, rewinds, PLT. With
// `with_best` a second row if another interval is better. Then the sensitivity, if there is any.
std::string comparison_text(const Comparison& comparison);

// One JSON document: {model, trace:{name, nodes, events, seconds},
// policies:{NAME:{checkpoint_steps, goodput, ettr, samples, of_ideal, time:{train, checkpoint,
// recover, redo, idle}, plt, failures, rewinds, experts_rolled_back, checkpoints,
// checkpoints_skipped, steps, best:{the same}}}, sensitivity:[{parameter, value,
// goodput:{NAME:...}}]}. Times in seconds, to the microsecond.
std::string comparison_json(const Comparison& comparison);

struct ChartOptions {
  double width = 900;
  double height = 480;
};
// Goodput of every policy (at its best interval with `with_best`) over the time of the trace, and
// below it the live nodes. A whole SVG document: no external scripts, fonts or
// files.
std::string comparison_svg(const Comparison& comparison, const ChartOptions& options);

// Samples per second in each of `buckets` equal parts of the trace, from the curve of samples that
// count: lost samples are not in it.
std::vector<double> goodput_curve(const Outcome& outcome, Micros end, size_t buckets);

}  // namespace moetrain::simulate
