// moetrain run: resolves the flags, starts a ckptd if none is given, and supervises the ranks.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "formats/base/console.h"
#include "trainer/cli/command.h"
#include "trainer/cli/run_facts.h"
#include "trainer/cli/run_flags.h"
#include "trainer/cli/temporary_folder.h"
#include "trainer/elastic/stop_signals.h"
#include "trainer/report/report.h"

namespace moetrain {

namespace {

namespace fs = std::filesystem;

// Chooses where the run's own ckptd listens, and keeps its data and its log. Makes the data folder.
Status place_own_daemon(const RunSpec& spec, const fs::path& folder, RunOptions& options) {
  const fs::path kept = spec.own_daemon.data_dir;
  options.rank.socket = (folder / "ckptd.sock").string();
  options.data_dir = (kept.empty() ? folder / "data" : kept).string();
  options.log_file = ((kept.empty() ? folder : kept) / "ckptd.log").string();
  std::error_code error;
  const bool is_new = !fs::exists(options.data_dir, error);
  fs::create_directories(options.data_dir, error);
  if (!error && is_new && !kept.empty()) {
    ckpt::base::print_stderr("moetrain: created {}\n",
                             fs::absolute(kept, error).lexically_normal().string());
  }
  if (!error) return {};
  if (kept.empty()) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "folder {}: {}; TMPDIR says where it is made",
                            options.data_dir, error.message());
  }
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "--data-dir {}: {}", options.data_dir,
                          error.message());
}

// Names the files that keep what an earlier run may have written.
void say_unwritten(const RunOptions& options) {
  for (const auto& [flag, path] :
       {std::pair("--metrics", &options.metrics_file), std::pair("--events", &options.events_file),
        std::pair("--schedule-trace", &options.schedule_trace_file)}) {
    if (path->empty()) continue;
    ckpt::base::print_stderr("moetrain: {} {}: not written, as no step is trained\n", flag, *path);
  }
}

// Prints that there is nothing to train, and writes the requested report, without steps.
Status report_done(const ResolvedRun& run) {
  const RankOptions& rank = run.options.rank;
  ckpt::base::print_stderr(
      "moetrain: already done: {}~{}@{} is of the last step, --steps {}; nothing is trained "
      "and nothing is changed; give a larger --steps to train on\n",
      rank.run, rank.resume_lineage, rank.resume_step, rank.steps);
  say_unwritten(run.options);
  const report::Report report{.ranks = rank.ranks,
                              .steps = rank.resume_step,
                              .tokens_per_step = rank.config.tokens_per_step(),
                              .saved_step = rank.resume_step};
  if (!run.options.report_file.empty()) {
    CKPT_TRY(report::write_file(run.options.report_file, report::to_json(report)));
  }
  if (run.options.print_report) ckpt::base::write_stdout_exactly(report::to_json(report));
  return {};
}

// Prints how to watch the run in its own ckptd, whose socket has a generated name.
void print_socket(const RunOptions& options) {
  if (!options.own_daemon) return;
  ckpt::base::print_stderr("moetrain: `ckptctl --socket unix:{} status` shows this run's ckptd\n",
                           options.rank.socket);
}

// Keeps or removes the folder of the run's own ckptd, and prints which.
void keep_or_remove(const RunSpec& spec, TemporaryFolder& folder) {
  if (spec.own_daemon.keep) {
    ckpt::base::print_stderr("kept {}\n", folder.path().string());
    return folder.keep();
  }
  if (!spec.own_daemon.data_dir.empty()) return;
  ckpt::base::print_stderr(
      "moetrain: the store with this run's checkpoints was temporary and is removed now; "
      "--data-dir DIR keeps it\n");
}

class RunCommand {
 public:
  explicit RunCommand(const RunSpec& spec) : spec_(spec) {}
  Result<int> run();

 private:
  // Learns the facts that resolve() needs, until it needs none, or one that only ckptd knows.
  Status resolve_on_machine();
  // The same until no fact is missing, with the running ckptd. The paths of an own ckptd stay.
  Status resolve_with_ckptd();
  Result<int> supervise();

  const RunSpec& spec_;
  RunFacts facts_;  // keeps the pipes open that the run writes
  ResolvedRun resolved_;
  std::optional<TemporaryFolder> folder_;  // of the run's own ckptd
};

Status RunCommand::resolve_on_machine() {
  CKPT_ASSIGN(facts_, first_facts(spec_));
  CKPT_ASSIGN(resolved_, spec_.resolve(facts_));
  while (resolved_.needs == Fact::kGpus || resolved_.needs == Fact::kData) {
    CKPT_TRY(learn(resolved_.needs, spec_, resolved_, facts_));
    CKPT_ASSIGN(resolved_, spec_.resolve(facts_));
  }
  for (const std::string& note : resolved_.notes) ckpt::base::print_stderr("moetrain: {}\n", note);
  return {};
}

Status RunCommand::resolve_with_ckptd() {
  while (resolved_.needs != Fact::kNone) {
    CKPT_TRY(learn(resolved_.needs, spec_, resolved_, facts_));
    CKPT_ASSIGN(ResolvedRun next, spec_.resolve(facts_));
    next.options.rank.socket = resolved_.options.rank.socket;
    resolved_ = std::move(next);
  }
  return {};
}

// Starts the run's own ckptd, if there is to be one, and the ranks.
Result<int> RunCommand::supervise() {
  Supervisor supervisor(resolved_.options);
  Status ready = supervisor.start_daemon();
  if (ready.ok() && spec_.resumes()) {
    // ckptd may hang while it is asked about the run, and signals are not polled meanwhile.
    const ExitOnStopSignal exits([this] {
      if (folder_) folder_->remove();
    });
    ready = resolve_with_ckptd();
    if (ready.ok() && !resolved_.done) ready = supervisor.settle(resolved_.options.rank);
  }
  if (const auto signal = supervisor.stop_signal()) {
    ckpt::base::print_stderr("moetrain: {}\n", stopped_early(*signal));
    return 128 + *signal;
  }
  CKPT_TRY(ready);
  if (resolved_.done) {
    CKPT_TRY(report_done(resolved_));
    return 0;
  }
  print_socket(resolved_.options);
  if (const std::string why = why_not_saving(resolved_.options.rank.socket); !why.empty()) {
    ckpt::base::print_stderr("moetrain: ckptd takes no checkpoints now: {}{}\n", why,
                             resolved_.options.own_daemon
                                 ? " (moetrain starts its own ckptd without settings: to set it "
                                   "up, start ckptd yourself and give its --socket)"
                                 : "");
  }
  const int exit_code = supervisor.run();
  if (folder_) keep_or_remove(spec_, *folder_);
  return exit_code;
}

Result<int> RunCommand::run() {
  CKPT_TRY(resolve_on_machine());
  RunOptions& options = resolved_.options;
  if (!options.own_daemon) {
    // ckptd must answer before it can be asked about the run.
    CKPT_TRY(await_given_ckptd(options.rank.socket, options.rank.run));
    return supervise();
  }
  hold_stop_signals();  // from here on there is a folder to remove and a daemon to stop
  CKPT_ASSIGN(TemporaryFolder folder, TemporaryFolder::make("moetrain"));
  folder_.emplace(std::move(folder));
  CKPT_TRY(place_own_daemon(spec_, folder_->path(), options));
  return supervise();
}

}  // namespace

void add_run_command(CLI::App& app, ExitCode& exit_code) {
  auto spec = std::make_shared<RunSpec>();
  CLI::App* command =
      app.add_subcommand("run", "Train on local ranks, which may die and come back");
  add_run_flags(*command, *spec);
  command->footer(
      "Exit codes: those of every command; 128 + n when signal n (SIGINT, SIGTERM, SIGHUP, "
      "SIGUSR1,\n"
      "SIGUSR2, SIGXCPU) stopped the run before its last step. The step it was at is saved, "
      "unless\n"
      "stderr says otherwise.\n"
      "Examples:\n"
      "  moetrain run --ranks 4 --steps 60 --checkpoint-every 5 --kill 2@33 --report a.json\n"
      "  moetrain run --ranks 4 --checkpoint-every auto --experts-per-checkpoint auto\n"
      "  moetrain run --ranks 2 --data book.txt --data-dir /var/tmp/books --run books\n"
      "  moetrain run --ranks 4 --steps 200 --data-dir /var/tmp/books --run books --resume latest");
  command->callback([spec, command, &exit_code] {
    record_given_flags(*command, *spec);
    exit_code.value = exit_code_of(RunCommand(*spec).run());
  });
}

}  // namespace moetrain
