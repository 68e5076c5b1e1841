// RankOptions: the options of a rank process, as one JSON argument of `moetrain rank`.
#pragma once

#include <ckpt/ckpt.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/model/expert_schedule.h"
#include "trainer/parallel/planned_placement.h"
#include "trainer/placement/compute_placement.h"
#include "trainer/placement/ownership.h"
#include "trainer/train_config.h"

namespace moetrain {

struct RankOptions {
  TrainConfig config;
  std::vector<std::string> data;
  std::string router_trace;  // file of the trace that config.model follows; empty: none
  std::string run;
  std::string socket;
  uint64_t job = 0;            // number by which ckptd knows the ranks of this supervisor; 0: none
  uint32_t rank = 0;           // of the first epoch; its process's number always
  uint32_t ranks = 1;          // of the first epoch
  std::string device = "cpu";  // of every rank, as in rank_device.h
  uint32_t gpu = 0;            // of this rank, where the device is "cuda"
  bool pin = false;            // to CPU `rank`, modulo those there are: for measurements
  uint64_t steps = 0;          // where to stop: the number of the last step
  uint64_t checkpoint_every = 0;  // steps; 0: only after the last
  bool checkpoint_auto = false;   // choose the interval by measurement (trainer/partial/pacer.h)
  uint64_t checkpoint_turns = 0;  // alternates: this many steps without, then with; 0: always with
  bool skip_when_out_of_slabs = false;
  bool wait_durable = false;  // training blocks until each checkpoint is durable
  PartialOptions partial;
  // Replicated: a rank holds the experts that it computes. Sharded: a part of every expert.
  ExpertState expert_state = ExpertState::kReplicated;
  ExpertSchedule schedule;      // of sharded experts
  bool trace_schedule = false;  // report activities of the first steps (ScheduleEvent)
  // [layer][rank]: which experts each rank computes at first; empty: static_placement().
  std::vector<LayerSlots> placement;
  PlacementOptions placing;           // options of this placement and of every later one
  NodeOfProcess nodes;                // [process]: its node; processes of a node fail together
  uint64_t check_replicas_every = 0;  // steps after which replicas are compared; 0: never
  uint64_t replan_every = 0;          // steps between checks of the placement; 0: never
  bool replan_if_better = false;      // move experts for a better balance even if it does not pay
  // On a loss survivors continue; otherwise all ranks wait for a new process and resume.
  bool elastic = false;
  uint32_t grace_ms = 10'000;   // elastic: time for all survivors to join the next epoch
  bool report_routing = false;  // StepEvent::routed and the fields after it
  // How the first epoch starts; every later one continues.
  uint32_t resume = CKPT_RESUME_START;
  uint64_t resume_step = 0;     // with CKPT_RESUME_AT_STEP
  uint32_t resume_lineage = 0;  // with CKPT_RESUME_AT_STEP; 0: the current one
  // Steps in which this process kills itself, between backward and update. If it is already past
  // such a step, it does so in the next one.
  std::vector<uint64_t> kill_at;
  // Elastic: after these steps, or at the next step boundary, this process sends itself the signal
  // to leave.
  std::vector<uint64_t> leave_after;
  // Failures and training time so far, as the supervisor knows them: a new process has seen none.
  uint64_t failures_known = 0;
  double training_ms_known = 0;
  // Phases of a membership change (kPhases) in which this process kills itself.
  std::vector<std::string> kill_in;
  uint32_t heartbeat_ms = 0;  // interval of heartbeats; 0: none
  // Timeout of the first answer of ckptd, when the process starts.
  uint32_t open_timeout_ms = 30'000;
  uint32_t collective_timeout_ms = 60'000;
  uint32_t join_timeout_ms = 120'000;
  // For the last checkpoint, all attempts together. The supervisor ends a wait without progress
  // sooner (UnsavedWatch::kEndMs).
  uint32_t save_timeout_ms = 600'000;

  // True if the state of experts can move between ranks, so that a rank may have to save any
  // expert. A new placement of sharded experts moves no state.
  bool moves_experts() const {
    return elastic || (expert_state == ExpertState::kReplicated && replan_every != 0);
  }
  bool experts_sharded() const { return expert_state == ExpertState::kSharded; }
};

// The placement that a run with these options begins with. Errors: those of validate().
Result<ComputePlacement> first_placement(const RankOptions& options);

// Phases of a membership change in a survivor, in this order.
inline constexpr std::string_view kPhases[] = {"join", "connect", "agree",   "plan",
                                               "move", "commit",  "restore", "settle"};

std::string to_json(const RankOptions& options);
Result<RankOptions> parse_rank_options(std::string_view json);

}  // namespace moetrain
