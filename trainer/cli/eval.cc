// moetrain eval: the loss of a saved run on text it has not seen.
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/console.h"
#include "formats/base/json_dump.h"
#include "formats/base/unix_address.h"
#include "trainer/checkpoint/saved_run.h"
#include "trainer/cli/command.h"
#include "trainer/cli/resume_remedy.h"
#include "trainer/cli/values.h"
#include "trainer/data.h"
#include "trainer/loop.h"
#include "trainer/report/report.h"
#include "trainer/router_trace_file.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

struct EvalFlags {
  std::string target;
  std::string socket;
  std::vector<std::string> data;
  std::string router_trace;
  uint64_t sequences = 64;
  std::string logits_file;
  bool json = false;
};

// Writes the logits of the first held-out sequence, routed as in `step`, as raw fp32, [tokens,
// vocabulary]. Returns the tokens, so that another implementation can compute the same.
Result<std::vector<int32_t>> write_logits(Comm& comm, Model& model, std::span<const uint8_t> text,
                                          uint64_t step, const std::string& path) {
  const uint32_t seq_len = model.config().seq_len;
  const std::vector<int32_t> tokens(text.begin(), text.begin() + seq_len);
  const std::vector<int32_t> targets(text.begin() + 1, text.begin() + 1 + seq_len);
  std::vector<float> logits(size_t{seq_len} * model.config().vocab);
  CKPT_TRY(model.evaluate(comm, {tokens, targets, step}, logits));
  CKPT_TRY(report::write_file(path, ckpt::as_text(std::as_bytes(std::span(logits)))));
  return tokens;
}

Result<SavedRun> find_target(const std::string& socket, const ckpt::Selector& commit) {
  Result<SavedRun> saved = find_saved_run(socket, commit);
  if (saved.ok()) return saved;
  return reworded(saved.error(), saved.error().message + read_remedy(saved.error().detail));
}

Result<int> eval(EvalFlags& flags) {
  CKPT_ASSIGN(ckpt::Selector commit, ckpt::parse_selector(flags.target));
  if (commit.kind == ckpt::Selector::Kind::kRun) commit.kind = ckpt::Selector::Kind::kLatest;
  const std::string& run = commit.run;
  if (flags.sequences == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--sequences 0: nothing to evaluate");
  }
  if (ckpt::base::is_network_address(flags.socket)) {
    return make_error(ErrorCode::kInvalidArgument, "--socket {}: {}", flags.socket,
                      kOnlyUnixSockets);
  }
  if (flags.data.empty()) {
    CKPT_ASSIGN(flags.data, default_data_paths());
  }
  CKPT_ASSIGN(const Corpus corpus, Corpus::load(flags.data));
  std::shared_ptr<const RouterTrace> trace;
  if (!flags.router_trace.empty()) {
    CKPT_ASSIGN(trace, load_router_trace(flags.router_trace));
  }
  CKPT_TRY(await_given_ckptd(flags.socket, run));
  CKPT_ASSIGN(const SavedRun saved, find_target(flags.socket, commit));
  CKPT_TRY(corpus.check_fits(saved.config.model.seq_len));
  CKPT_ASSIGN(const LoadedModel loaded,
              load_saved_model(flags.socket, run, saved, std::move(trace)));
  for (const std::string& note : loaded.notes) ckpt::base::print_stderr("moetrain: {}\n", note);
  const auto comms = make_local_comms(1);
  CKPT_ASSIGN(const double loss, evaluate_text(*comms[0], *loaded.model, corpus.held_out(),
                                               flags.sequences, saved.step));
  nlohmann::ordered_json answer = {{"run", run},
                                   {"step", saved.step},
                                   {"lineage", saved.lineage},
                                   {"sequences", flags.sequences},
                                   {"tokens", flags.sequences * saved.config.model.seq_len},
                                   {"loss", loss}};
  Status written;  // the loss is printed even if the file cannot be written
  if (!flags.logits_file.empty()) {
    const Result<std::vector<int32_t>> tokens =
        write_logits(*comms[0], *loaded.model, corpus.held_out(), saved.step, flags.logits_file);
    if (tokens.ok()) {
      answer["logits"] = {{"file", flags.logits_file},
                          {"dtype", "F32"},
                          {"shape", {tokens->size(), saved.config.model.vocab}},
                          {"tokens", *tokens}};
    } else {
      written = tokens.error();
    }
  }
  if (flags.json) {
    ckpt::base::write_stdout_exactly(ckpt::base::dump_json(answer) + "\n");
  } else {
    ckpt::base::print_stdout("{}~{}@{}: loss {:.4f} nats per byte over {} held-out tokens\n", run,
                             saved.lineage, saved.step, loss, answer["tokens"].dump());
  }
  CKPT_TRY(written);
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand("eval", "Loss of a saved run on held-out text");
  command
      ->add_option("target", flags->target,
                   "RUN (its newest commit), RUN@STEP, RUN~LINEAGE@STEP, RUN@TAG or RUN@latest")
      ->required();
  command->add_option("--socket", flags->socket, "Ask the ckptd at unix:PATH")
      ->envname("CKPTD_SOCKET")
      ->required();
  command->add_option("--data", flags->data,
                      "Take the held-out text of these files and folders (default: as for run)");
  command->add_option("--router-trace", flags->router_trace,
                      "The routing trace (plain CSV) that the run follows, if it follows one");
  command
      ->add_option("--sequences", flags->sequences,
                   "Evaluate N sequences, spread over the held-out text")
      ->capture_default_str();
  command->add_option(
      "--logits", flags->logits_file,
      "Write the logits of one sequence (raw fp32) to this file; --json prints its tokens");
  command->add_flag("--json", flags->json, "Print one JSON document");
  command->footer("Example:\n  moetrain eval books@200 --socket unix:/run/ckptd/ckptd.sock --json");
  command->callback([flags, &exit_code] { exit_code.value = exit_code_of(eval(*flags)); });
}

}  // namespace moetrain
