// RunSpec: the flags of `moetrain run` as the user gave them, and their validation.
//
// resolve() is the only validation of the flags of `run`. It is pure: the machine, the files and
// the resumed commit come in as facts, options for the supervisor and its ranks come out, or one
// error. The rules by topic:
//   run_rules.cc        bounds, and flags that need or exclude each other: one table
//   run_checkpoints.cc  what is saved, and when
//   run_placement.cc    which rank holds which expert
//   run_changes.cc      ranks that die, join and leave
//   run_resume.cc       the commit that --resume names
//   run_trace.cc        the trace that routing follows
// The command-line parser (run_flags.cc) refuses only text that has not the form of a value:
// letters where a number belongs, a word that is not in the list of choices.
//
// A new flag takes a field here and an option in run_flags.cc. A rule that it brings with it is an
// entry of the table in run_rules.cc, or a function of its topic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/selector.h"
#include "trainer/checkpoint/saved_run.h"
#include "trainer/cli/config_spec.h"
#include "trainer/cli/output_files.h"
#include "trainer/elastic/supervisor.h"
#include "trainer/model/router_trace.h"

namespace moetrain {

struct GpuFacts {
  int count = 0;
  std::string reason;  // why there are none
};

// The training data that was read.
struct DataFacts {
  std::vector<std::string> paths;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

// The part of the resumed commit's trainer unit that decides how the run continues.
struct CommitState {
  uint64_t data_bytes = 0;
  uint32_t data_crc32c = 0;
  std::vector<int64_t> routed_tokens;  // [layers * experts], since the run began
};

// Facts about the machine and the store. The first ones are cheap and always known; the others are
// learnt one after the other, as ResolvedRun::needs asks for them.
struct RunFacts {
  std::string socket_variable;  // CKPTD_SOCKET; empty: not set
  std::string domains_csv;      // content of the file that --domains names
  // Can the files of the run be written? The result of check_outputs().
  Result<HeldOutputs> outputs = HeldOutputs();
  std::optional<GpuFacts> gpus;  // needed only with --device cuda or cuda:N
  // Content of the file that --router-trace names; null without the flag.
  std::shared_ptr<const RouterTrace> router_trace;
  std::optional<DataFacts> data;
  std::optional<SavedRun> commit;           // needed only with --resume
  std::optional<CommitState> commit_state;  // needed only if there are steps left to train
};

enum class Fact : uint8_t { kNone, kGpus, kData, kCommit, kCommitState };

struct ResolvedRun {
  // For the supervisor and its ranks. rank.config is set as soon as it is known (at once, or with
  // the resumed commit), rank.placement only when no fact is missing. Paths of the run's own ckptd
  // are not here: they are chosen when its folder is made.
  RunOptions options;
  ckpt::Selector commit;           // with --resume: the commit it names
  std::vector<std::string> notes;  // sentences for the user: what is probably a slip
  Fact needs = Fact::kNone;        // the fact to learn before the next resolve()
  bool done = false;               // the commit is of the last step: there is nothing to train
};

struct RunSpec {
  // Flags on the command line or in environment variables: name ("--kill") and first value as typed
  // (empty for a switch).
  std::map<std::string, std::string, std::less<>> given;

  std::string run_name = "moetrain";
  std::vector<std::string> data;
  std::string socket;  // empty: the run starts a ckptd of its own
  uint32_t ranks = 1;
  uint64_t steps = 100;
  std::string device = "cpu";
  bool pin = false;
  ConfigSpec config;
  std::string router_trace;  // path; empty: routing follows no trace
  std::string resume;
  bool new_data = false;

  struct Checkpoints {
    std::string every = "10";
    uint64_t turns = 0;
    std::string experts = "all";      // --experts-per-checkpoint
    std::string experts_in_snapshot;  // --experts-per-snapshot; empty: as many as are written
    std::string selector = "risk-aware";
    std::string parts = "both";
    uint32_t staleness_max = 0;
    double plt_budget = kPltBudgetDefault;
    std::string dense_sharding = "bytes";
    std::string out_of_slabs = "wait";
    std::string wait = "copied";
    std::string unsaved_max;
    std::string on_unsaved = "warn";
  } checkpoints;

  struct Placement {
    std::string expert_state = "replicated";
    uint32_t prefetch = ExpertSchedule().prefetch;
    std::string reshard = "delayed";
    std::string policy = "static";
    uint32_t slots = 0;
    uint32_t slots_max = 0;
    uint32_t replicas_min = 0;
    std::string domains_file;
    std::optional<uint64_t> replan_every;
    std::string replan_if = "pays";
    uint64_t check_replicas_every = 0;
  } placement;

  struct Changes {
    std::optional<std::string> on_loss;
    uint32_t grace_ms = RankOptions().grace_ms;
    uint32_t collective_timeout_ms = RankOptions().collective_timeout_ms;
    uint32_t heartbeat_timeout_ms = RunOptions().heartbeat_timeout_ms;
    uint32_t restarts_max = RunOptions().restarts_max;
    std::vector<std::string> joins, leaves, kills, kills_in;
    std::vector<uint64_t> daemon_kills;
  } changes;

  struct OwnDaemon {
    std::string data_dir;
    bool keep = false;
    std::string io;
    uint32_t timeout_ms = RunOptions().daemon_timeout_ms;
  } own_daemon;

  OutputFlags outputs;

  bool is_given(std::string_view flag) const { return given.contains(flag); }
  bool resumes() const { return !resume.empty(); }
  bool experts_sharded() const { return placement.expert_state == "sharded"; }
  bool survivors_continue() const { return changes.on_loss.value_or("continue") == "continue"; }

  // Checks every rule whose facts are known, so that an error comes as early as it can. The caller
  // learns the fact that the answer needs, and calls again. Errors name the flag, its value, the
  // reason and what to do: kInvalidArgument; kUnavailable for a GPU that is not there; kIo for
  // a file that cannot be written.
  Result<ResolvedRun> resolve(const RunFacts& facts) const;
};

}  // namespace moetrain
