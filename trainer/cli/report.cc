// moetrain report: shows a run's report in tables and pictures.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "formats/base/console.h"
#include "trainer/cli/command.h"
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

// The move by --replan-every after the step of --move, or the last one. kNotFound if there was
// none; moves of a membership change have no placements in the report.
Result<const report::Replan*> find_move(const ReportFlags& flags, const report::Report& report) {
  const auto found = std::find_if(
      report.replans.rbegin(), report.replans.rend(), [&](const report::Replan& replan) {
        return replan.moved && replan.step == flags.move.value_or(replan.step);
      });
  if (found != report.replans.rend()) return &*found;
  if (flags.move) {
    return make_error(ErrorCode::kNotFound, "{}: no experts moved after step {} by --replan-every",
                      flags.file, *flags.move);
  }
  const bool by_changes = std::any_of(report.changes.begin(), report.changes.end(),
                                      [](const auto& change) { return change.bytes_moved > 0; });
  return make_error(ErrorCode::kNotFound, "{}: {}", flags.file,
                    by_changes ? "experts moved only as ranks joined or left; a report has the "
                                 "placements of moves by --replan-every alone"
                               : "no experts moved by --replan-every");
}

LayerChange change_of(const report::Replan& move) {
  return {.loads = move.loads, .before = move.ranks_before, .after = move.ranks_after};
}

std::string move_title(const report::Replan& move) {
  return fmt::format("layer {}, whose experts moved after step {}", move.layer, move.step);
}

void print_report(const report::Report& loaded, const report::Replan* move) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const char* asked = std::getenv("NO_COLOR");
  const bool no_color = asked != nullptr && *asked != '\0';
  const report::ChartOptions chart{.columns = report::terminal_columns(STDOUT_FILENO),
                                   .unicode = report::locale_is_utf8(),
                                   .color = terminal && !no_color};
  ckpt::base::print_stdout("{}\n{}\n", report::summary_text(loaded),
                           report::failure_table_text(loaded));
  for (const std::string& table :
       {report::rank_table_text(loaded), report::exchange_table_text(loaded),
        report::replan_table_text(loaded)}) {
    if (!table.empty()) ckpt::base::print_stdout("{}\n", table);
  }
  if (move != nullptr) {
    ckpt::base::print_stdout(
        "{}\n{}\n", move_title(*move),
        change_picture(change_of(*move), {.columns = chart.columns, .unicode = chart.unicode}));
  }
  ckpt::base::print_stdout("{}", report::loss_chart_text(loaded, chart));
}

Status write_placements(const ReportFlags& flags, const Result<const report::Replan*>& move) {
  if (!move.ok()) {
    return make_error(move.error().code, "{} is not written: {}", flags.placement_svg,
                      move.error().message);
  }
  return report::write_file(flags.placement_svg, change_svg(change_of(**move), move_title(**move)));
}

// Shows and writes all it can; prints an error for each part that it cannot.
Result<int> show_report(const ReportFlags& flags) {
  CKPT_ASSIGN(const report::Report loaded, report::read_report(flags.file));
  const Result<const report::Replan*> move = find_move(flags, loaded);
  print_report(loaded, move.ok() ? *move : nullptr);
  bool all = true;
  const auto written = [&all](const Status& status) {
    if (status.ok()) return;
    fail(status.error());
    all = false;
  };
  if (!flags.svg.empty()) {
    written(report::write_file(flags.svg, report::loss_chart_svg(loaded, {})));
  }
  if (!flags.placement_svg.empty()) written(write_placements(flags, move));
  if (!all) return 1;
  if (flags.move && !move.ok()) return move.error();
  return 0;
}

}  // namespace

void add_report_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command =
      app.add_subcommand("report", "Show summary, failures, loss curve and placements of a report");
  command->add_option("file", flags->file, "Report of `moetrain run --report`")->required();
  command->add_option("--svg", flags->svg, "Write the loss curve to this file");
  command->add_option("--placement-svg", flags->placement_svg,
                      "Write a picture to this file: the experts and the load of each rank, before "
                      "and after --replan-every moved experts");
  command->add_option("--move", flags->move,
                      "Show the move of experts after this step (default: the last one)");
  command->footer(
      "A picture that cannot be drawn or written is named, the others are written, and the exit "
      "code is 1.\n"
      "Examples:\n"
      "  moetrain report a.json --svg loss.svg\n"
      "  moetrain report a.json --move 200 --placement-svg moved.svg");
  command->callback([flags, &exit_code] { exit_code.value = exit_code_of(show_report(*flags)); });
}

}  // namespace moetrain
