// A report for people: summary, table of failures, loss curve in the terminal and as SVG.
// Pure: values in, text out. `moetrain report` and the end of `moetrain run` print these.
#pragma once

#include <string>
#include <string_view>

#include "trainer/report/report.h"

namespace moetrain::report {

// A few lines: ranks, steps, loss from - to, step time, ranks that joined and left, steps without a
// checkpoint, checkpoints and their stall, bytes of each (the table below), the interval and its
// reason. Unsaved steps at the end are left out if they were printed before.
enum class Printed { kHere, kBefore };
std::string summary_text(const Report& report, Printed unsaved_steps = Printed::kHere);

// One row per failure, in the order of steps: what was lost, when, time to detection, time to
// recovery, steps redone, bytes restored and their source. One row for each period without a
// checkpoint. "no failures" without any of these.
std::string failure_table_text(const Report& report);

// One row for each check of the placement; empty if there was none.
std::string replan_table_text(const Report& report);

// One row for each rank: the parts of its time, and how often the others waited for it. Empty if
// unknown.
std::string rank_table_text(const Report& report);

// One row: bytes, waits and memory of the exchange of sharded experts. Empty for replicated ones.
std::string exchange_table_text(const Report& report);

// Three rows, each column sorted separately: minimum, median and maximum over all checkpoints of
// bytes, busiest rank's bytes, their ratio to the mean, time blocked, time to durable. One
// row if there is one checkpoint.
std::string checkpoint_table_text(const Report& report);

struct ChartOptions {
  int columns = 80;     // whole width, axis included; at least 30 are used
  int rows = 14;        // of the plot itself; at least 4 are used
  bool unicode = true;  // braille dots and box lines, else ASCII
  bool color = false;   // ANSI colours
};
// The loss curve with axes and a mark under the axis for each failure. Ends with a newline.
// Without a finite loss: one line that says so.
std::string loss_chart_text(const Report& report, const ChartOptions& options);

struct SvgOptions {
  int width = 800;
  int height = 400;
  std::string title = "Training loss";
};
// A whole SVG document: the loss curve, its running mean, a marker with text for each failure.
std::string loss_chart_svg(const Report& report, const SvgOptions& options);

// "steps 21 to 60 are in no checkpoint", where 20 is the newest saved step; `step` is larger.
std::string unsaved_steps_text(uint64_t saved, uint64_t step);

// "6.152 % of all so far (0.000 % in restarts, 6.152 % of experts that came back alone)": lost
// tokens, as proportions; `of`: "all so far".
std::string lost_part_text(double plt, double plt_rollback, std::string_view of);

// "8.5 ms", "850 ms", "2.1 s", "3 min 5 s": for people; never parsed.
std::string human_ms(double milliseconds);

}  // namespace moetrain::report
