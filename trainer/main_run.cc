// moetrain run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>

#include "formats/base/console.h"
#include "trainer/data.h"
#include "trainer/elastic/rank_device.h"
#include "trainer/elastic/stop_signals.h"
#include "trainer/elastic/supervisor.h"
#include "trainer/main.h"
#include "trainer/main_elastic.h"
#include "trainer/main_partial.h"
#include "trainer/main_placement.h"
#include "trainer/main_resume.h"
#include "trainer/model/presets.h"

namespace moetrain {

namespace fs = std::filesystem;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

struct RunFlags {
  RunOptions options;
  ConfigFlags config;
  ResumeFlags resume;
  std::vector<std::string> kills;
  ElasticFlags elastic;
  std::string out_of_slabs = "wait";
  std::string checkpoint_wait = "copied";
  PartialFlags partial;
  PlacementFlags placement;
  std::string data_dir;
  bool keep = false;
  bool run_given = false;  // by --run or CKPTD_RUN
};

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<RankAt> parse_kill(const std::string& text) {
  const std::string_view whole = text;
  const size_t at = std::min(text.find('@'), text.size());
  const std::optional<uint64_t> rank = parse_number(whole.substr(0, at));
  const uint64_t step = parse_number(whole.substr(std::min(at + 1, text.size()))).value_or(0);
  if (!rank || *rank > UINT32_MAX || step == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--kill {}: must be RANK@STEP, like 2@33", text);
  }
  return RankAt{static_cast<uint32_t>(*rank), step};
}

Status check_run_name(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
  if (!name.empty() && name.size() <= 128 && letters && name[0] != '.' && name[0] != '-') return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--run '{}': 1 to 128 of [A-Za-z0-9._-], not beginning with . or -", name);
}

// A socket as its user said it: who set the variable long ago does not know of a flag.
std::string socket_as_given(const std::string& socket) {
  const char* const variable = ::getenv("CKPTD_SOCKET");
  const bool from_variable = variable != nullptr && socket == variable;
  return from_variable ? fmt::format("CKPTD_SOCKET={} in the environment: unset it", socket)
                       : fmt::format("--socket {}", socket);
}

Status check_flags(RunFlags& flags) {
  RankOptions& rank = flags.options.rank;
  CKPT_TRY(check_run_name(rank.run));
  if (rank.ranks == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--ranks 0: at least 1 is needed");
  }
  if (rank.steps == 0) return make_error(ErrorCode::kInvalidArgument, "--steps 0: nothing to do");
  for (const std::string& kill : flags.kills) {
    CKPT_ASSIGN(const RankAt parsed, parse_kill(kill));
    flags.options.kills.push_back(parsed);
  }
  if (!rank.socket.empty() && !flags.data_dir.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--data-dir {}: only for a ckptd of our own, not with {}", flags.data_dir,
                      socket_as_given(rank.socket));
  }
  if (!rank.socket.empty() && !flags.options.daemon_kills.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--kill-daemon: not with {}",
                      socket_as_given(rank.socket));
  }
  CKPT_ASSIGN(rank.partial, flags.partial.parse());
  CKPT_ASSIGN(rank.placing, flags.placement.parse());
  CKPT_ASSIGN(rank.nodes, flags.placement.read_nodes());
  CKPT_TRY(flags.partial.parse_every(rank));
  CKPT_TRY(flags.elastic.apply(flags.options));
  CKPT_TRY(flags.placement.apply_replan(rank));
  rank.tell_routing = !flags.options.metrics_file.empty();
  rank.skip_when_out_of_slabs = flags.out_of_slabs == "skip";
  rank.wait_durable = flags.checkpoint_wait == "durable";
  return {};
}

// Who is not named counts as a node by itself: as it was meant, or by a slip.
void say_unnamed(const RunFlags& flags) {
  const NodeOfProcess& nodes = flags.options.rank.nodes;
  if (nodes.empty()) return;
  uint32_t processes = flags.options.rank.ranks;
  for (const RankJoin& join : flags.options.joins) processes += join.count;
  std::vector<uint32_t> unnamed;
  for (uint32_t rank = 0; rank < processes; ++rank) {
    if (rank >= nodes.size() || nodes[rank] == kOwnNode) unnamed.push_back(rank);
  }
  if (unnamed.empty()) return;
  const bool one = unnamed.size() == 1;
  ckpt::base::print_stderr("moetrain: {} names no node of rank{} {}: {} a node by itself\n",
                           flags.placement.domains_file, one ? "" : "s", fmt::join(unnamed, ", "),
                           one ? "it is" : "each is");
}

// A folder for the socket, the log and, unless --data-dir says otherwise, the data of our own
// ckptd.
class WorkFolder {
 public:
  static Result<WorkFolder> make() {
    CKPT_ASSIGN(std::string path, make_temporary_folder("moetrain"));
    return WorkFolder(path);
  }
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder() { remove(); }
  void remove() const {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

Status use_own_daemon(RunFlags& flags, const WorkFolder& folder) {
  RunOptions& options = flags.options;
  options.rank.socket = (folder.path() / "ckptd.sock").string();
  options.data_dir = flags.data_dir.empty() ? (folder.path() / "data").string() : flags.data_dir;
  options.data_stays = !flags.data_dir.empty() || flags.keep;
  options.log_file =
      (flags.data_dir.empty() ? folder.path() : fs::path(flags.data_dir)) / "ckptd.log";
  std::error_code error;
  fs::create_directories(options.data_dir, error);
  if (!error) return {};
  return make_error(ErrorCode::kInvalidArgument, "--data-dir {}: {}", options.data_dir,
                    error.message());
}

// The data as the ranks will read it.
Result<Corpus> load_data(RankOptions& rank) {
  if (rank.data.empty()) {
    CKPT_ASSIGN(rank.data, default_data_paths());
  }
  return Corpus::load(rank.data);
}

TrainConfig default_config() {
  TrainConfig config;
  config.model = *preset("tiny");
  // One micro-batch of many sequences: a run that was started on few ranks can go on with more.
  config.micro_batches = 1;
  config.batch = 8;
  return config;
}

// Looks up the commit to resume from, with ckptd's help. No value: there is nothing to train.
struct Resumed {
  SavedRun saved;
  TrainerState state;
};
Result<std::optional<Resumed>> look_up_resumed(const RunFlags& flags, const Corpus& corpus) {
  const RankOptions& rank = flags.options.rank;
  CKPT_ASSIGN(SavedRun saved, flags.resume.find(flags.options, flags.config));
  if (flags.resume.is_done(saved, rank.steps)) {
    CKPT_TRY(flags.resume.say_done(flags.options, saved));
    return std::optional<Resumed>();
  }
  CKPT_ASSIGN(TrainerState state, load_trainer_state(rank.socket, rank.run, saved));
  CKPT_TRY(flags.resume.check_data(rank.run, state, corpus));
  return std::optional(Resumed{std::move(saved), std::move(state)});
}

// Everything that can be refused before a rank is started; with --resume, with ckptd's help. False:
// there is nothing to train.
Result<bool> settle(RunFlags& flags, const Corpus& corpus, Supervisor& supervisor) {
  const RankOptions& rank = flags.options.rank;
  SavedRun begin{.config = rank.config};
  std::optional<Resumed> resumed;
  if (flags.resume.asked()) {
    CKPT_ASSIGN(resumed, look_up_resumed(flags, corpus));
    if (!resumed) return false;
    begin = resumed->saved;
    supervisor.resume_at(begin.lineage, begin.step);
  }
  CKPT_TRY(validate(begin.config, rank.ranks));
  CKPT_TRY(validate(rank.partial, begin.config.model.experts));
  CKPT_TRY(check_device(rank.device, begin.config.precision));
  CKPT_TRY(corpus.check_fits(begin.config.model.seq_len));
  CKPT_TRY(check_changes(flags.options, begin.step + 1));
  if (!resumed) {
    CKPT_TRY(supervisor.settle(begin.config, rank.placement));
    return true;
  }
  // By what the run has routed so far, where the policy asks for that.
  CKPT_ASSIGN(const PlacementOptions options, flags.placement.parse());
  std::vector<int64_t> routed;
  if (flags.placement.asks_for_loads()) routed = resumed->state.progress.routed_tokens;
  CKPT_ASSIGN(auto placement,
              plan_for_run(options, begin.config, first_group(rank.ranks, rank.nodes), routed));
  CKPT_TRY(supervisor.settle(begin.config, std::move(placement)));
  return true;
}

// Says what becomes of the folder of our own ckptd, and of a store in it.
void keep_or_remove(const RunFlags& flags, WorkFolder& folder) {
  if (flags.keep) {
    ckpt::base::print_stderr("kept {}\n", folder.path().string());
    return folder.keep();
  }
  if (!flags.data_dir.empty()) return;
  ckpt::base::print_stderr(
      "moetrain: the store with this run's checkpoints was temporary and is removed now; "
      "--data-dir DIR keeps it\n");
}

Result<int> run(RunFlags& flags) {
  CKPT_TRY(check_flags(flags));
  say_unnamed(flags);
  for (const std::string& flag : flags.partial.without_effect()) {
    ckpt::base::print_stderr(
        "moetrain: {}: without effect, as every checkpoint takes all experts; see "
        "--experts-per-checkpoint\n",
        flag);
  }
  RankOptions& rank = flags.options.rank;
  CKPT_TRY(flags.resume.parse(rank, flags.run_given));
  const bool resumes = flags.resume.asked();
  CKPT_ASSIGN(rank.config, flags.config.apply(default_config()));
  // With --resume the run's own configuration counts, which is not known yet.
  if (!resumes) {
    CKPT_TRY(validate(rank.config, rank.ranks));
    CKPT_TRY(validate(rank.partial, rank.config.model.experts));
    CKPT_TRY(check_device(rank.device, rank.config.precision));
    CKPT_TRY(check_changes(flags.options, 1));
    CKPT_ASSIGN(rank.placement,
                plan_for_run(rank.placing, rank.config, first_group(rank.ranks, rank.nodes), {}));
  }
  CKPT_ASSIGN(std::optional<Corpus> corpus, load_data(rank));
  if (!resumes) {
    CKPT_TRY(corpus->check_fits(rank.config.model.seq_len));
  }
  flags.options.own_daemon = rank.socket.empty();
  std::optional<WorkFolder> folder;
  if (flags.options.own_daemon) {
    hold_stop_signals();  // the folder and the daemon shall not outlive us
    CKPT_ASSIGN(WorkFolder made, WorkFolder::make());
    folder.emplace(std::move(made));
    CKPT_TRY(use_own_daemon(flags, *folder));
  } else {
    CKPT_TRY(await_ckptd(rank.socket, rank.run, [](const std::string& line) {
      ckpt::base::print_stderr("moetrain: {}\n", line);
    }));
  }
  Supervisor supervisor(flags.options);
  Result<bool> ready = true;
  if (const Status started = supervisor.start_daemon(); !started.ok()) ready = started.error();
  if (ready.ok()) {
    // ckptd is asked about the run, and may hang.
    const ExitOnStopSignal exits([&folder] {
      if (folder) folder->remove();
    });
    ready = settle(flags, *corpus, supervisor);
  }
  if (const auto signal = supervisor.stop_signal()) return 128 + *signal;
  if (!ready.ok()) return ready.error();
  if (!*ready) return 0;
  corpus.reset();  // the ranks read it themselves
  const int exit_code = supervisor.run();
  if (folder) keep_or_remove(flags, *folder);
  return exit_code;
}

void add_flags(CLI::App& command, RunFlags& flags) {
  RankOptions& rank = flags.options.rank;
  rank.run = "moetrain";
  rank.steps = 100;
  command.add_option("--ranks", rank.ranks, "Rank processes")->capture_default_str();
  command.add_option("--steps", rank.steps, "The last step")->capture_default_str();
  command.add_option("--data", rank.data, "Files and folders to learn from; default: our sources");
  command.add_option("--run", rank.run, "Name of the run")
      ->envname("CKPTD_RUN")
      ->capture_default_str();
  command.add_option("--socket", rank.socket, "A running ckptd; default: one of our own")
      ->envname("CKPTD_SOCKET");
  command.add_option("--device", rank.device, "cpu, cuda (a GPU for each rank) or cuda:N")
      ->capture_default_str();
  command.add_flag("--pin", rank.pin, "Each rank on a CPU of its own: for measurements");
  flags.resume.add_to(command);
  command.add_option("--out-of-slabs", flags.out_of_slabs, "wait or skip the snapshot")
      ->check(CLI::IsMember({"wait", "skip"}))
      ->capture_default_str();
  command
      .add_option("--checkpoint-wait", flags.checkpoint_wait,
                  "Train on when a checkpoint is copied, or only when it is durable")
      ->check(CLI::IsMember({"copied", "durable"}))
      ->capture_default_str();
  flags.partial.add_to(command);
  flags.placement.add_to(command);
  command
      .add_option("--check-replicas", rank.check_replicas_every,
                  "Compare replicas after every so many steps, and fail if they differ; 0: never")
      ->group("Placement");
  flags.elastic.add_to(command, flags.options);
  command.add_option("--kill", flags.kills, "RANK@STEP: this rank kills itself in this step");
  command.add_option("--kill-daemon", flags.options.daemon_kills,
                     "STEP: kill our own ckptd after this step");
  command
      .add_option("--restarts-max", flags.options.restarts_max,
                  "Restarts in a row without a completed step")
      ->capture_default_str();
  command.add_option("--data-dir", flags.data_dir, "Data of our own ckptd, kept; default: none");
  command.add_flag("--keep", flags.keep, "Keep the temporary folder of our own ckptd");
  command.add_option("--io", flags.options.io, "Of our own ckptd: uring or pwritev")
      ->check(CLI::IsMember({"uring", "pwritev"}));
  command.add_option("--report", flags.options.report_file, "Write the report (JSON) here");
  command.add_option("--metrics", flags.options.metrics_file,
                     "Write a JSON line per step here; a step that is done again has another one");
  command.add_option("--events", flags.options.events_file,
                     "Write all that the ranks say here, a JSON line each");
  command.add_flag("--json", flags.options.print_report, "Print the report on stdout");
}

}  // namespace

void add_run_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command =
      app.add_subcommand("run", "Train on local ranks, which may die and come back");
  add_flags(*command, *flags);
  flags->config.add_to(*command);
  command->footer(
      "Exit codes: those of every command; 128 + n when signal n (SIGINT, SIGTERM, SIGHUP, "
      "SIGUSR1,\n"
      "SIGUSR2) stopped the run before its last step. What it was at is saved, unless stderr says "
      "otherwise.\n"
      "Examples:\n"
      "  moetrain run --ranks 4 --steps 60 --checkpoint-every 5 --kill 2@33 --report a.json\n"
      "  moetrain run --ranks 4 --checkpoint-every auto --experts-per-checkpoint auto\n"
      "  moetrain run --ranks 2 --data book.txt --data-dir /var/tmp/books --run books\n"
      "  moetrain run --ranks 4 --steps 200 --data-dir /var/tmp/books --run books --resume latest");
  command->callback([flags, command, &exit_code] {
    flags->run_given = command->count("--run") > 0;
    const Result<int> result = run(*flags);
    exit_code.value = result.ok() ? *result : fail(result.error());
  });
}

}  // namespace moetrain
