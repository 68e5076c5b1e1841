// moetrain calibrate: measures this machine, and writes a cost model for `moetrain simulate`.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "formats/base/console.h"
#include "trainer/calibrate/measured_model.h"
#include "trainer/cli/command.h"
#include "trainer/cli/temporary_folder.h"
#include "trainer/data.h"
#include "trainer/elastic/process.h"
#include "trainer/model/presets.h"
#include "trainer/simulate/model_file.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

struct CalibrateFlags {
  std::string preset = "tiny";
  uint32_t ranks = 4;
  uint32_t steps = 10;
  std::vector<std::string> data;
  std::string out;
};

constexpr uint64_t kExchangeBytes = uint64_t{4} << 20;  // per rank: larger than socket buffers
constexpr uint64_t kCopyBytes = uint64_t{64} << 20;     // larger than the last-level cache
constexpr uint32_t kRanksMin = 3;                       // two survive a loss and form a group
constexpr int kRunTimeoutMs = 300'000;  // ranks, a daemon and `steps` steps; some seconds usually

// The report of a `moetrain run` that saves every third step and loses its last rank halfway.
// `more`: flags on what the other ranks do then.
Result<report::Report> run_with_a_loss(const CalibrateFlags& flags,
                                       const std::vector<std::string>& more) {
  CKPT_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make("moetrain-calibrate"));
  const std::string report = folder.path() / "report.json";
  Process::Options options{
      .arguments = {this_program(), "run", "--ranks", std::to_string(flags.ranks), "--preset",
                    flags.preset, "--steps", std::to_string(2 * flags.steps), "--checkpoint-every",
                    "3", "--kill", fmt::format("{}@{}", flags.ranks - 1, flags.steps + 1),
                    "--report", report}};
  options.descriptors = {{STDERR_FILENO, STDOUT_FILENO}};  // our stdout is for the model
  options.death_signal = SIGTERM;                          // it has a daemon to stop
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  for (const std::string& path : flags.data) {
    options.arguments.insert(options.arguments.end(), {"--data", path});
  }
  CKPT_ASSIGN(Process process, Process::start(options));
  const std::optional<ProcessEnd> end = process.wait(kRunTimeoutMs);
  if (!end) {
    process.signal(SIGTERM);
    process.wait(10'000);
    return make_error(ErrorCode::kDeadlineExceeded, "calibrate: moetrain run took more than {} s",
                      kRunTimeoutMs / 1000);
  }
  if (end->exit_code != 0 || end->signal != 0) {
    return make_error(ErrorCode::kAborted, "calibrate: moetrain run ended with {}", end->text());
  }
  return report::read_report(report);
}

void say(const std::string& what) { ckpt::base::print_stderr("moetrain: {}\n", what); }

// Measures the cost of a loss: once if all ranks resume, once if survivors with replicas continue.
Status measure_runs(const CalibrateFlags& flags, calibrate::Measured& measured) {
  say(fmt::format("checkpoints and a loss: {} ranks and a ckptd, all resume", flags.ranks));
  CKPT_ASSIGN(measured.restarted, run_with_a_loss(flags, {"--on-loss", "restart"}));
  say("a loss with replicas: the others continue");
  const uint32_t slots = calibrate::slots(measured.config.model, flags.ranks);
  CKPT_ASSIGN(measured.continued,
              run_with_a_loss(flags, {"--on-loss", "continue", "--placement", "frontier", "--slots",
                                      std::to_string(slots), "--min-replicas",
                                      std::to_string(calibrate::kReplicas)}));
  return {};
}

Result<int> calibrate_command(CalibrateFlags flags) {
  const std::optional<ModelConfig> shape = preset(flags.preset);
  if (!shape) {
    return make_error(ErrorCode::kInvalidArgument, "--preset {}: no such model", flags.preset);
  }
  if (flags.ranks < kRanksMin || flags.steps < 4) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--ranks {} --steps {}: at least {} ranks and 4 steps", flags.ranks,
                      flags.steps, kRanksMin);
  }
  ckpt::base::UniqueFd out;  // a pipe stays open until it is written
  if (!flags.out.empty()) {
    CKPT_ASSIGN(out, report::check_writable(flags.out));
  }
  calibrate::Measured measured{.ranks = flags.ranks};
  measured.config.model = *shape;
  CKPT_TRY(validate(measured.config, flags.ranks));
  if (flags.data.empty()) {
    CKPT_ASSIGN(flags.data, default_data_paths());
  }
  CKPT_ASSIGN(const Corpus corpus, Corpus::load(flags.data));
  CKPT_TRY(corpus.check_fits(shape->seq_len));
  say("compute: a rank trains with one expert for each token, then with two");
  CKPT_ASSIGN(measured.compute,
              calibrate::measure_compute(measured.config, corpus.train(), flags.steps));
  say(fmt::format("network: {} ranks over the loopback interface", flags.ranks));
  CKPT_ASSIGN(measured.network, calibrate::measure_network(flags.ranks, kExchangeBytes));
  measured.copy_bytes_per_s = calibrate::measure_copy(kCopyBytes);
  CKPT_TRY(measure_runs(flags, measured));
  CKPT_ASSIGN(const calibrate::MeasuredModel result, calibrate::measured_model(measured));
  const std::string text = fmt::format(
                               "# {} on {} ranks, by moetrain calibrate: what it measured"
                               " says so, the rest is assumed or follows.\n\n",
                               flags.preset, flags.ranks) +
                           simulate::model_text(result.model, result.comments);
  if (flags.out.empty()) {
    ckpt::base::print_stdout("{}", text);
    return 0;
  }
  CKPT_TRY(report::write_file(flags.out, text));
  return 0;
}

}  // namespace

void add_calibrate_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure this machine, and write a cost model for simulate");
  command->add_option("--preset", flags->preset, "Train a model of this size")
      ->capture_default_str();
  command
      ->add_option("--ranks", flags->ranks,
                   "Measure with N ranks, at least 3, one of which is lost")
      ->capture_default_str();
  command->add_option("--steps", flags->steps, "Take N steps per measurement, at least 4")
      ->capture_default_str();
  command->add_option("--data", flags->data,
                      "Train on these files and folders (default: as for run)");
  command->add_option("--out", flags->out, "Write the model file here (default: stdout)");
  command->footer(
      "Example:\n"
      "  moetrain calibrate --out here.toml\n"
      "  moetrain simulate --model here.toml --nodes 8 --mtbf 10m --duration 6h");
  command->callback(
      [flags, &exit_code] { exit_code.value = exit_code_of(calibrate_command(*flags)); });
}

}  // namespace moetrain
