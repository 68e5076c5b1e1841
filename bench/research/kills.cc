#include "bench/research/kills.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>

#include "bench/common/paired.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/research/kill_ladder.h"
#include "bench/research/kill_trial.h"
#include "bench/research/kills_report.h"
#include "formats/base/console.h"
#include "trainer/parallel/planned_placement.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using nlohmann::json;

namespace {

// The kill comes half an interval of checkpoints after the last one. Not in the first one: ckptd
// faults the arenas in while the first steps are done, and a restore waits for its part of them.
// Sharded experts return to the newest step only where every step is saved.
constexpr uint64_t kIntervalsBefore = 3;
constexpr uint32_t kCheckpointEvery = 8;
constexpr uint64_t kStepsAfter = 5;
constexpr const char* kLadder = "ladder";
constexpr const char* kOfReplicas[] = {"taken", kLadder};  // of no meaning to sharded experts

// The arms that are asked for, or else all that the state of experts allows.
Result<std::vector<std::string>> arms_to_run(const KillsOptions& options) {
  std::vector<std::string> all;
  for (const KillArm& arm : kKillArms) all.emplace_back(arm.name);
  all.emplace_back(kLadder);
  const auto is_of_replicas = [](const std::string& name) {
    return std::ranges::find(kOfReplicas, name) != std::end(kOfReplicas);
  };
  if (options.sharded) std::erase_if(all, is_of_replicas);
  for (const std::string& name : options.arms) {
    if (std::ranges::find(all, name) != all.end()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "--arms {}: sharded experts leave a part on every rank, so no rank takes any "
                      "with it; choose from {}",
                      name, fmt::join(all, ", "));
  }
  return options.arms.empty() ? all : options.arms;
}

class KillsBench {
 public:
  explicit KillsBench(const KillsOptions& options) : options_(options) {}

  Status prepare();
  Status measure();
  json document() const;

 private:
  bool wanted(const std::string& arm) const {
    return std::ranges::find(wanted_, arm) != wanted_.end();
  }
  void set_up();
  uint64_t redone_max(const KillArm& arm) const;
  Status one_round(int round);
  Status write_data() const;

  const KillsOptions options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<std::string> wanted_;  // arms
  double load_average_ = 0;          // before anything was started
  std::optional<ScratchDirectory> scratch_;
  KillSetup setup_;
  std::mt19937_64 random_{1};
  std::vector<KillArmTrials> arms_;
  std::optional<Ladder> ladder_;
};

Status KillsBench::write_data() const {
  std::ofstream text(setup_.workload.data);
  for (int i = 0; i < 30'000; ++i) text << "line " << i * i % 9973 << " of text " << i % 17 << '\n';
  if (text.flush()) return {};
  return make_error(ErrorCode::kIo, "{}: cannot be written", setup_.workload.data);
}

// Survivors with sharded experts return to the newest step that every rank had saved.
uint64_t KillsBench::redone_max(const KillArm& arm) const {
  if (setup_.sharded) return setup_.checkpoint_every;
  return arm.survivors_continue ? 0 : UINT64_MAX;
}

void KillsBench::set_up() {
  StepWorkload& workload = setup_.workload;
  workload.directory = scratch_->path();
  workload.data = scratch_->path() + "/data";
  workload.engine = options_.engine;
  workload.ranks = kKilledRanks;
  workload.batch = 16;
  setup_.sharded = options_.sharded;
  const uint32_t every = options_.checkpoint_every;
  setup_.checkpoint_every = every != 0 ? every : options_.sharded ? 1 : kCheckpointEvery;
  setup_.collective_timeout_ms = options_.collective_timeout_ms;
  const uint64_t interval = std::max(setup_.checkpoint_every, kCheckpointEvery);
  setup_.kill_after = kIntervalsBefore * interval + interval / 2;
  workload.window = {setup_.kill_after, setup_.kill_after + kStepsAfter};
}

Status KillsBench::prepare() {
  (void)::getloadavg(&load_average_, 1);
  CKPT_ASSIGN(wanted_, arms_to_run(options_));
  CKPT_ASSIGN(ScratchDirectory made, ScratchDirectory::make(options_.directory));
  scratch_.emplace(std::move(made));
  set_up();
  CKPT_TRY(write_data());
  const StepWorkload& workload = setup_.workload;
  const moetrain::PlacementOptions placing{.policy = moetrain::PolicyName::kLazarus,
                                           .slots = kKilledSlots,
                                           .replicas_min = kKilledReplicas};
  CKPT_ASSIGN(setup_.placement,
              moetrain::plan_experts(placing, train_config(workload).model, workload.ranks, {}));
  CKPT_ASSIGN(setup_.unharmed, train_reference(workload));
  for (const KillArm& arm : kKillArms) {
    if (!wanted(arm.name)) continue;
    auto victims = victims_of(setup_, arm);
    if (victims.empty()) {
      return make_error(ErrorCode::kFailedPrecondition, "no ranks are {}", arm.description);
    }
    std::ranges::shuffle(victims, random_);
    KillArm lost = arm;
    if (setup_.sharded && arm.victims == 2) lost.description = "two of the ranks";
    arms_.push_back({.arm = lost,
                     .same_bits = setup_.sharded,
                     .redone_max = redone_max(arm),
                     .victims = std::move(victims),
                     .trials = {}});
  }
  return {};
}

Status KillsBench::one_round(int round) {
  std::uniform_real_distribution<double> moment(0.1, 0.9);
  std::string line = fmt::format("round {}/{}:", round + 1, options_.rounds);
  for (size_t i = 0; i < arms_.size(); ++i) {
    // A B C C B A ...: no arm is always first or last in a round.
    KillArmTrials& arm = arms_[round % 2 == 0 ? i : arms_.size() - 1 - i];
    const auto& victims = arm.victims[static_cast<size_t>(round) % arm.victims.size()];
    CKPT_ASSIGN(KillTrial trial, run_trial(setup_, arm.arm, victims, moment(random_)));
    line += fmt::format(" {} {:.0f} ms", arm.arm.name, trial.figures.new_step_seconds * 1e3);
    arm.trials.push_back(std::move(trial));
  }
  ckpt::base::print_stderr("{}\n", line);
  return {};
}

Status KillsBench::measure() {
  for (int round = 0; round < options_.rounds && !arms_.empty(); ++round) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    if (passed.count() > options_.seconds_max) break;
    CKPT_TRY(one_round(round));
  }
  if (!wanted(kLadder)) return {};
  ckpt::base::print_stderr("down to one rank and back up\n");
  CKPT_ASSIGN(ladder_, run_ladder(setup_));
  return {};
}

json KillsBench::document() const {
  const StepWorkload& workload = setup_.workload;
  json all = kills_json(arms_, ladder_);
  all["bench"] = "kills";
  all["machine"] = machine(options_.directory);
  all["machine"]["load_average_before"] = load_average_;
  all["shape"] = {{"ranks", workload.ranks},
                  {"tokens_per_step", workload.tokens_per_step()},
                  {"layers", workload.layers},
                  {"experts", workload.experts},
                  {"expert_state", setup_.sharded ? "sharded" : "replicated"},
                  {"slots", setup_.sharded ? kKilledShardedSlots : kKilledSlots},
                  {"replicas_min", setup_.sharded ? 1 : kKilledReplicas},
                  {"checkpoint_every", setup_.checkpoint_every},
                  {"killed_in_step", setup_.kill_after + 1},
                  {"collective_timeout_ms", setup_.collective_timeout_ms},
                  {"io", options_.engine}};
  return all;
}

}  // namespace

Result<json> bench_kills(const KillsOptions& options) {
  KillsBench bench(options);
  CKPT_TRY(bench.prepare());
  CKPT_TRY(bench.measure());
  return bench.document();
}

}  // namespace bench
