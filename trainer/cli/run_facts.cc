#include "trainer/cli/run_facts.h"

#include <stdlib.h>

#include "formats/base/assert.h"
#include "trainer/cli/command.h"
#include "trainer/cli/resume_remedy.h"
#include "trainer/data.h"
#include "trainer/device/cuda_device.h"
#include "trainer/router_trace_file.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

GpuFacts ask_for_gpus() {
  GpuFacts gpus;
  gpus.count = count_cuda_devices(&gpus.reason);
  return gpus;
}

// Reads the data as every rank will. Ranks read it themselves, so only its size and checksum stay.
Result<DataFacts> read_data(const RunSpec& spec) {
  DataFacts data{.paths = spec.data};
  if (data.paths.empty()) {
    CKPT_ASSIGN(data.paths, default_data_paths());
  }
  CKPT_ASSIGN(const Corpus corpus, Corpus::load(data.paths));
  data.bytes = corpus.bytes();
  data.crc32c = corpus.crc32c();
  return data;
}

Result<SavedRun> find_commit(const ResolvedRun& run) {
  Result<SavedRun> saved = find_saved_run(run.options.rank.socket, run.commit);
  if (saved.ok() || saved.error().code != ErrorCode::kNotFound) return saved;
  if (run.options.keeps_data) {
    return reworded(saved.error(), saved.error().message + resume_remedy(saved.error().detail));
  }
  return make_error(ErrorCode::kNotFound,
                    "{} (this store is new and temporary: name the one that has the run by "
                    "--data-dir or --socket)",
                    saved.error().message);
}

Result<CommitState> load_commit_state(const ResolvedRun& run, const SavedRun& commit) {
  CKPT_ASSIGN(TrainerState state,
              load_trainer_state(run.options.rank.socket, run.options.rank.run, commit));
  return CommitState{.data_bytes = state.corpus_bytes,
                     .data_crc32c = state.corpus_crc32c,
                     .routed_tokens = std::move(state.progress.routed_tokens)};
}

}  // namespace

Result<RunFacts> first_facts(const RunSpec& spec) {
  RunFacts facts;
  if (const char* socket = ::getenv("CKPTD_SOCKET")) facts.socket_variable = socket;
  facts.outputs = check_outputs(spec.outputs);
  if (!spec.placement.domains_file.empty()) {
    Result<std::string> csv = read_text(spec.placement.domains_file);
    if (!csv.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "--domains {}", csv.error().message);
    }
    facts.domains_csv = *std::move(csv);
  }
  if (!spec.router_trace.empty()) {
    Result<std::shared_ptr<const RouterTrace>> trace = load_router_trace(spec.router_trace);
    if (!trace.ok()) {
      return make_error(trace.error().code, "--router-trace {}", trace.error().message);
    }
    facts.router_trace = *std::move(trace);
  }
  return facts;
}

Status learn(Fact fact, const RunSpec& spec, const ResolvedRun& run, RunFacts& facts) {
  switch (fact) {
    case Fact::kGpus:
      facts.gpus = ask_for_gpus();
      return {};
    case Fact::kData: {
      CKPT_ASSIGN(facts.data, read_data(spec));
      return {};
    }
    case Fact::kCommit: {
      CKPT_ASSIGN(facts.commit, find_commit(run));
      return {};
    }
    case Fact::kCommitState: {
      CKPT_ASSIGN(facts.commit_state, load_commit_state(run, *facts.commit));
      return {};
    }
    case Fact::kNone:
      break;
  }
  CKPT_ASSERT_MSG(false, "there is no fact to learn");
}

}  // namespace moetrain
