#include "bench/research/kill_ladder.h"

#include <fmt/format.h>

#include <iterator>

#include "bench/research/live_run.h"

namespace bench {

using ckpt::Result;
using moetrain::RankEvent;

namespace {

constexpr uint32_t kKillOrder[] = {3, 6, 0, 7, 1, 4, 2};  // 5 is left
constexpr uint64_t kStepsBetween = 3;
constexpr uint64_t kStepsMax = 2'000;  // far more than it takes for processes to come
constexpr int kStoppedExit = 143;

std::vector<std::string> ladder_flags(const KillSetup& setup) {
  std::vector<std::string> flags = arm_flags(setup, kKillArms[0]);
  flags.insert(flags.end(), {"--checkpoint-wait", "durable"});
  uint64_t step = 0;
  for (const uint32_t rank : kKillOrder) {
    step += kStepsBetween;
    flags.insert(flags.end(), {"--kill", fmt::format("{}@{}", rank, step)});
  }
  flags.insert(flags.end(),
               {"--join", fmt::format("{}@{}", std::size(kKillOrder), step + kStepsBetween)});
  return flags;
}

// Waits until all ranks train again, after only one was left.
Result<uint64_t> await_all(LiveRun& run, uint32_t ranks) {
  size_t next = 0;
  bool alone = false;
  for (uint64_t step = 1;; ++step) {
    CKPT_TRY(run.await_step(step));
    for (; next < run.events().size(); ++next) {
      const RankEvent& event = run.events()[next];
      const auto* training = event.as<moetrain::TrainingEvent>();
      if (training == nullptr) continue;
      alone = alone || training->group == 1;
      if (alone && training->group == ranks) return event.header.step;
    }
  }
}

}  // namespace

Result<Ladder> run_ladder(const KillSetup& setup) {
  constexpr uint64_t kStepsTogether = 5;
  KillSetup longer = setup;
  longer.checkpoint_every = 1;  // what the last ones take with them has to be as new as the rest
  StepWorkload& workload = longer.workload;
  workload.window.last = kStepsMax;
  CKPT_ASSIGN(const auto run, LiveRun::start(workload, ladder_flags(longer)));
  CKPT_ASSIGN(const uint64_t together, await_all(*run, workload.ranks));
  CKPT_TRY(run->await_step(together + kStepsTogether));
  run->stop();
  CKPT_TRY(run->finish(kStoppedExit));
  Ladder ladder{.figures = ladder_figures(run->events(), {.ranks = workload.ranks,
                                                          .experts = workload.experts,
                                                          .slots = kKilledSlots,
                                                          .replicas_min = kKilledReplicas})};
  workload.window.last = ladder.figures.steps;
  CKPT_ASSIGN(const ReferenceRun expected, train_reference(workload));
  ladder.same_bits = ladder.figures.loss_bits == expected.loss_bits;
  return ladder;
}

}  // namespace bench
