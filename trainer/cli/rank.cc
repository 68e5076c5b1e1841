// moetrain rank: one rank process. The supervisor of `run` starts it.
#include "trainer/rank/rank.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>

#include "trainer/cli/command.h"
#include "trainer/elastic/events.h"
#include "trainer/elastic/stop_signals.h"

namespace moetrain {

namespace {

std::atomic<bool> stop_requested = false;
std::atomic<bool> drain_requested = false;

// Ranks also take the stop signals themselves: Slurm sends them to every process of a job.
void handle_rank_signals(bool elastic) {
  const auto stop = [](int) { stop_requested = true; };
  const auto leave = [](int) { drain_requested = true; };
  ::signal(stop_rank_signal(), stop);
  ::signal(leave_rank_signal(), leave);
  for (const int number : kStopSignals) handle_unless_ignored(number, stop);
  if (elastic) handle_unless_ignored(SIGTERM, leave);
}

}  // namespace

void add_rank_command(CLI::App& app, ExitCode& exit_code) {
  auto text = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("rank", "One rank; started by run")->group("");
  command->add_option("--options", *text, "JSON")->required();
  command->callback([text, &exit_code] {
    const Result<RankOptions> options = parse_rank_options(*text);
    if (!options.ok()) {
      exit_code.value = fail(options.error());
      return;
    }
    ::signal(SIGPIPE, SIG_IGN);
    handle_rank_signals(options->elastic);
    EventWriter events(kEventFd, options->rank);
    exit_code.value = run_rank(*options, events, stop_requested, drain_requested);
  });
}

}  // namespace moetrain
