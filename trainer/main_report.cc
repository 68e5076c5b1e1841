// moetrain report: a run's report in tables and pictures.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "formats/base/console.h"
#include "trainer/main.h"
#include "trainer/placement/picture.h"
#include "trainer/report/progress.h"
#include "trainer/report/render.h"
#include "trainer/report/text.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

struct ReportFlags {
  std::string file;
  std::string svg;
  std::string placement_svg;
  std::optional<uint64_t> move;
};

// The move after this step, or the last one; null if there was none.
Result<const report::Replan*> find_move(const ReportFlags& flags, const report::Report& report) {
  const auto found = std::find_if(
      report.replans.rbegin(), report.replans.rend(), [&](const report::Replan& replan) {
        return replan.moved && replan.step == flags.move.value_or(replan.step);
      });
  if (found != report.replans.rend()) return &*found;
  if (flags.move) {
    return make_error(ErrorCode::kNotFound, "{}: no experts moved after step {}", flags.file,
                      *flags.move);
  }
  if (flags.placement_svg.empty()) return nullptr;
  return make_error(ErrorCode::kNotFound, "{}: no experts moved", flags.file);
}

Status show_move(const ReportFlags& flags, const report::Replan& move, int columns) {
  const LayerChange change{
      .loads = move.loads, .before = move.ranks_before, .after = move.ranks_after};
  const std::string title =
      fmt::format("layer {}, of which experts moved after step {}", move.layer, move.step);
  ckpt::base::print_stdout("{}\n{}\n", title,
             change_picture(change, {.columns = columns, .unicode = report::locale_is_utf8()}));
  if (flags.placement_svg.empty()) return {};
  return report::write_file(flags.placement_svg, change_svg(change, title));
}

Result<int> show_report(const ReportFlags& flags) {
  CKPT_ASSIGN(const report::Report loaded, report::read_report(flags.file));
  CKPT_ASSIGN(const report::Replan* const move, find_move(flags, loaded));
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const char* asked = std::getenv("NO_COLOR");
  const bool no_color = asked != nullptr && *asked != '\0';
  const report::ChartOptions chart{.columns = report::terminal_columns(STDOUT_FILENO),
                                   .unicode = report::locale_is_utf8(),
                                   .color = terminal && !no_color};
  ckpt::base::print_stdout("{}\n{}\n", report::summary_text(loaded), report::failure_table_text(loaded));
  for (const std::string& table :
       {report::rank_table_text(loaded), report::replan_table_text(loaded)}) {
    if (!table.empty()) ckpt::base::print_stdout("{}\n", table);
  }
  if (move != nullptr) CKPT_TRY(show_move(flags, *move, chart.columns));
  ckpt::base::print_stdout("{}", report::loss_chart_text(loaded, chart));
  if (flags.svg.empty()) return 0;
  CKPT_TRY(report::write_file(flags.svg, report::loss_chart_svg(loaded, {})));
  return 0;
}

}  // namespace

void add_report_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command =
      app.add_subcommand("report", "Summary, failures, loss curve and placements of a report");
  command->add_option("file", flags->file, "What `run --report` wrote")->required();
  command->add_option("--svg", flags->svg, "Write the loss curve here");
  command->add_option("--placement-svg", flags->placement_svg,
                      "Write here who held what, and how much each rank had to do, before and "
                      "after experts moved");
  command->add_option("--move", flags->move,
                      "Show the move after this step; default: the last one");
  command->footer(
      "Examples:\n"
      "  moetrain report a.json --svg loss.svg\n"
      "  moetrain report a.json --move 200 --placement-svg moved.svg");
  command->callback([flags, &exit_code] {
    const Result<int> result = show_report(*flags);
    exit_code.value = result.ok() ? *result : fail(result.error());
  });
}

}  // namespace moetrain
