#include "bench/research/kill_trial.h"

#include <signal.h>

#include <algorithm>

#include "bench/research/live_run.h"
#include "trainer/checkpoint/units.h"
#include "trainer/partial/experts.h"

namespace bench {

using ckpt::Result;
using moetrain::ExpertGrid;
using moetrain::RankEvent;

namespace {

// Survivors that have noticed a hang wait so long for the one who hangs.
constexpr uint32_t kHangGraceMs = 500;

struct KilledRun {
  std::vector<RankEvent> events;
  Kill kill;
};

Result<KilledRun> run_and_kill(const KillSetup& setup, const KillArm& arm,
                               const std::vector<uint32_t>& victims, double moment) {
  constexpr uint64_t kStepsBefore = 4;  // whose mean tells how long a step is
  CKPT_ASSIGN(const auto run, LiveRun::start(setup.workload, arm_flags(setup, arm)));
  CKPT_ASSIGN(const uint64_t earlier_ns, run->await_step(setup.kill_after - kStepsBefore));
  CKPT_ASSIGN(const uint64_t begin_ns, run->await_step(setup.kill_after));
  const auto step_ns = static_cast<double>(begin_ns - earlier_ns) / kStepsBefore;
  const uint64_t at_ns = begin_ns + static_cast<uint64_t>(moment * step_ns);
  while (moetrain::monotonic_ns() < at_ns && run->read_until(at_ns)) {
  }
  KilledRun killed{.kill = {.ranks = victims}};
  CKPT_ASSIGN(killed.kill.at_ns, run->signal_ranks(victims, arm.hangs ? SIGSTOP : SIGKILL));
  CKPT_TRY(run->finish());
  killed.events = run->events();
  return killed;
}

// The same ranks leave, as they are asked to, after this step.
Result<std::map<uint64_t, uint32_t>> run_and_leave(const KillSetup& setup, const KillArm& arm,
                                                   const std::vector<uint32_t>& victims,
                                                   uint64_t step) {
  std::vector<std::string> flags = arm_flags(setup, arm);
  for (const uint32_t rank : victims) {
    flags.insert(flags.end(), {"--leave", fmt::format("{}@{}", rank, step)});
  }
  CKPT_ASSIGN(const auto run, LiveRun::start(setup.workload, flags));
  CKPT_TRY(run->finish());
  std::map<uint64_t, uint32_t> loss_bits;
  for (const RankEvent& event : run->events()) {
    if (const auto* done = event.as<moetrain::StepEvent>()) {
      loss_bits[event.header.step] = done->loss_bits;
    }
  }
  return loss_bits;
}

std::set<uint32_t> experts_of(const std::set<uint32_t>& units, const StepWorkload& workload) {
  const ExpertGrid grid{workload.layers, workload.experts};
  const auto all = moetrain::state_units(train_config(workload).model);
  std::set<uint32_t> experts;
  for (const uint32_t id : units) {
    const moetrain::StateUnit& unit = all.at(id);
    if (unit.expert) experts.insert(static_cast<uint32_t>(grid.at(*unit.layer, *unit.expert)));
  }
  return experts;
}

}  // namespace

std::set<uint32_t> experts_taken(const moetrain::ComputePlacement& placement,
                                 const std::vector<uint32_t>& ranks) {
  const ExpertGrid grid{placement.layers(), placement.experts};
  std::set<uint32_t> taken;
  for (uint32_t layer = 0; layer < grid.layers; ++layer) {
    const auto holders = moetrain::holders_of_experts(placement, layer);
    for (uint32_t expert = 0; expert < grid.experts; ++expert) {
      const bool gone = std::ranges::all_of(holders[expert], [&](uint32_t holder) {
        return std::ranges::find(ranks, holder) != ranks.end();
      });
      if (gone) taken.insert(static_cast<uint32_t>(grid.at(layer, expert)));
    }
  }
  return taken;
}

std::vector<std::vector<uint32_t>> victims_of(const KillSetup& setup, const KillArm& arm) {
  std::vector<std::vector<uint32_t>> groups;
  for (uint32_t first = 0; first < setup.workload.ranks; ++first) {
    if (arm.victims == 1) groups.push_back({first});
    for (uint32_t second = first + 1; arm.victims == 2 && second < setup.workload.ranks; ++second) {
      groups.push_back({first, second});
    }
  }
  if (setup.sharded) return groups;
  std::erase_if(groups, [&](const std::vector<uint32_t>& ranks) {
    return experts_taken(setup.placement, ranks).empty() == arm.takes_experts;
  });
  return groups;
}

std::vector<std::string> arm_flags(const KillSetup& setup, const KillArm& arm) {
  std::vector<std::string> flags = {"--on-loss", arm.survivors_continue ? "continue" : "restart",
                                    "--checkpoint-every", std::to_string(setup.checkpoint_every)};
  if (setup.sharded) {
    flags.insert(flags.end(), {"--expert-state", "sharded", "--placement", "laer", "--slots",
                               std::to_string(kKilledShardedSlots)});
  } else {
    flags.insert(flags.end(), {"--placement", "lazarus", "--slots", std::to_string(kKilledSlots),
                               "--min-replicas", std::to_string(kKilledReplicas)});
  }
  if (arm.hangs) {
    flags.insert(flags.end(),
                 {"--collective-timeout-ms", std::to_string(setup.collective_timeout_ms),
                  "--loss-grace-ms", std::to_string(kHangGraceMs)});
  }
  return flags;
}

Result<KillTrial> run_trial(const KillSetup& setup, const KillArm& arm,
                            const std::vector<uint32_t>& victims, double moment) {
  CKPT_ASSIGN(const KilledRun run, run_and_kill(setup, arm, victims, moment));
  KillTrial trial{.ranks = victims};
  CKPT_ASSIGN(trial.figures, kill_figures(run.events, run.kill));
  const KillFigures& figures = trial.figures;
  ReferenceRun expected = setup.unharmed;
  std::set<uint32_t> taken;
  if (arm.takes_experts) {
    taken = experts_taken(setup.placement, victims);
    const uint64_t version = setup.kill_after - setup.kill_after % setup.checkpoint_every;
    CKPT_ASSIGN(expected, train_reference(setup.workload, RollBack{.at = figures.resumed_at,
                                                                   .version = version,
                                                                   .experts = taken}));
  }
  trial.experts_taken = taken.size();
  trial.rolled_back_exactly = experts_of(figures.stale_units, setup.workload) == taken &&
                              figures.lost_tokens == expected.lost_tokens;
  trial.same_bits = figures.loss_bits == expected.loss_bits;
  if (arm.survivors_continue && !arm.hangs && !arm.takes_experts && !setup.sharded) {
    CKPT_ASSIGN(expected.loss_bits, run_and_leave(setup, arm, victims, figures.resumed_at));
  }
  trial.loss_difference = relative_difference(figures.loss_bits, expected.loss_bits);
  return trial;
}

}  // namespace bench
