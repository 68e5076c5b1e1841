#include "bench/common/step_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "bench/common/scratch.h"
#include "formats/base/unique_fd.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

namespace {

constexpr int kStepRunMs = 300'000;
constexpr int kSupervisorStopMs = 45'000;  // what the supervisor gives its ckptd

std::string log_file(const std::string& folder) { return folder + "/moetrain.log"; }

// Runs to the end; the error contains the output of the run.
ckpt::Status run_to_end(const std::vector<std::string>& command, const std::string& folder) {
  CKPT_ASSIGN(moetrain::Process process, start_run(command, folder));
  auto end = process.wait(kStepRunMs);
  if (!end) {
    process.signal(SIGKILL);
    (void)process.wait(kSupervisorStopMs);
    return make_error(ErrorCode::kDeadlineExceeded, "moetrain run did not end within {} s: {}",
                      kStepRunMs / 1000, run_log(folder));
  }
  if (end->signal == 0 && end->exit_code == 0) return {};
  return make_error(ErrorCode::kFailedPrecondition, "moetrain run ended with {}: {}", end->text(),
                    run_log(folder));
}

Result<std::vector<moetrain::RankEvent>> events_of_run(const StepWorkload& workload,
                                                       std::vector<std::string> flags) {
  // No rank is lost. "restart" saves each step the agreement that survivors need.
  flags.insert(flags.end(), {"--on-loss", "restart"});
  std::vector<moetrain::RankEvent> events;
  {
    CKPT_ASSIGN(const ScratchDirectory folder, ScratchDirectory::make(workload.directory));
    const std::string file = folder.path() + "/events.jsonl";
    CKPT_TRY(run_to_end(run_command(workload, file, flags), folder.path()));
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      CKPT_ASSIGN(moetrain::RankEvent event, moetrain::parse_event(line));
      events.push_back(std::move(event));
    }
  }
  settle(workload.directory);
  return events;
}

}  // namespace

std::vector<std::string> run_command(const StepWorkload& workload, const std::string& events,
                                     const std::vector<std::string>& flags) {
  const auto number = [](auto value) { return std::to_string(value); };
  std::vector<std::string> arguments = {moetrain::sibling_program("moetrain"),
                                        "run",
                                        "--preset",
                                        "tiny",
                                        "--ranks",
                                        number(workload.ranks),
                                        "--layers",
                                        number(workload.layers),
                                        "--experts",
                                        number(workload.experts),
                                        "--intermediate",
                                        number(workload.intermediate),
                                        "--micro-batches",
                                        "1",
                                        "--batch",
                                        number(workload.batch),
                                        "--seq",
                                        number(workload.seq_len),
                                        "--steps",
                                        number(workload.window.last),
                                        "--data",
                                        workload.data,
                                        "--io",
                                        workload.engine,
                                        "--events",
                                        events};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

Result<moetrain::Process> start_run(const std::vector<std::string>& command,
                                    const std::string& folder) {
  const std::string log = log_file(folder);
  const ckpt::base::UniqueFd log_fd(
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!log_fd.valid()) return make_error(ErrorCode::kIo, "{}: {}", log, std::strerror(errno));
  moetrain::Process::Options options{.arguments = command, .environment = {"TMPDIR=" + folder}};
  options.descriptors = {{log_fd.get(), STDOUT_FILENO}, {log_fd.get(), STDERR_FILENO}};
  return moetrain::Process::start(options);
}

std::string run_log(const std::string& folder) {
  std::stringstream text;
  text << std::ifstream(log_file(folder)).rdbuf();
  return text.str();
}

Result<StepFigures> run_steps(const StepWorkload& workload, const std::vector<std::string>& flags) {
  CKPT_ASSIGN(const std::vector<moetrain::RankEvent> events, events_of_run(workload, flags));
  return step_figures(events, workload.window);
}

Result<TurnFigures> run_turns(const StepWorkload& workload, uint64_t turn_steps,
                              std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--checkpoint-turns", std::to_string(turn_steps)});
  CKPT_ASSIGN(const std::vector<moetrain::RankEvent> events, events_of_run(workload, flags));
  return turn_figures(events, workload.window, turn_steps);
}

}  // namespace bench
