// Events of a rank: one struct per kind, with the fields that this kind has.
//
// Times in milliseconds are durations. A number is the sending rank's own unless its comment says
// "all ranks". The JSON form of each kind is described in event_fields.h.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/base/snapshot_timings.h"
#include "trainer/elastic/event_parts.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

// The rank asks to join the next epoch, and waits until all ranks have asked.
struct JoiningEvent {
  static constexpr std::string_view kName = "joining";
  int64_t pid = 0;
  bool operator==(const JoiningEvent&) const = default;
};

// The rank joined the epoch and connects to its peers.
struct ConnectingEvent {
  static constexpr std::string_view kName = "connecting";
  bool operator==(const ConnectingEvent&) const = default;
};

// The rank is connected and restores or migrates its state.
struct RestoringEvent {
  static constexpr std::string_view kName = "restoring";
  bool operator==(const RestoringEvent&) const = default;
};

// The state is in place; the next step is `step` + 1.
struct TrainingEvent {
  static constexpr std::string_view kName = "training";
  bool resumed = false;             // from the view of `step`
  uint64_t view_lineage = 0;        // resumed: of that view
  bool survivors_continue = false;  // with the state of survivors
  bool joins = false;               // survivors_continue: this rank had no state before
  uint64_t lineage = 0;             // that the epoch commits to
  uint32_t group = 0;               // ranks of the epoch
  uint32_t effective_replicas = 0;  // least number of failure domains that hold an expert
  std::string collectives;          // of state on GPUs: "nccl", or "host" for host memory
  double regroup_ms = 0;  // survivors_continue: from the loss to connections with the next group
  RestoredState restored;
  Relayout relayout;
  CheckpointPace pace;
  uint64_t failures = 0;   // of the run, as far as the rank knows
  double training_ms = 0;  // of the run so far, as far as the rank knows
  bool operator==(const TrainingEvent&) const = default;
};

// A peer of the epoch is lost or hangs. The rank leaves the epoch and will join the next one.
struct GroupLostEvent {
  static constexpr std::string_view kName = "group_lost";
  std::string reason;
  bool operator==(const GroupLostEvent&) const = default;
};

// The rank leaves the epoch together with all its peers, to join the next one.
struct RegroupingEvent {
  static constexpr std::string_view kName = "regrouping";
  std::string reason;
  Relayout relayout;  // of the state that leaving ranks handed over
  bool operator==(const RegroupingEvent&) const = default;
};

// The rank handed its state over and left, on request.
struct DrainedEvent {
  static constexpr std::string_view kName = "drained";
  Relayout relayout;
  bool operator==(const DrainedEvent&) const = default;
};

// The ranks planned the placement anew after `step`, and moved experts or not. From rank 0.
struct ReplannedEvent {
  static constexpr std::string_view kName = "replanned";
  bool moved = false;
  // Maximum over mean of the ranks' tokens since the last plan: under the placement as it was, and
  // under the planned one.
  double balance_before = 0;
  double balance_after = 0;
  double gain_ms = 0;           // predicted until the next plan (ReplanChoice)
  double cost_ms = 0;           // predicted
  Relayout relayout;            // bytes_moved: planned, even if nothing moved
  uint32_t layer = 0;           // the layer with the worst balance before
  LayerSlots slots_before;      // [rank]: its experts of `layer`
  LayerSlots slots_after;       // the same, as planned
  std::vector<int64_t> routed;  // tokens to each expert of `layer` since the last plan
  bool operator==(const ReplannedEvent&) const = default;
};

// The rank is about to kill itself (fault injection).
struct DyingEvent {
  static constexpr std::string_view kName = "dying";
  std::string phase;  // of a membership change; empty: in the step
  bool operator==(const DyingEvent&) const = default;
};

// The rank fails; a restart would not help.
struct FatalEvent {
  static constexpr std::string_view kName = "fatal";
  std::string reason;
  int code = 0;  // ErrorCode
  bool operator==(const FatalEvent&) const = default;
};

// Heartbeat (heartbeat.h).
struct AliveEvent {
  static constexpr std::string_view kName = "alive";
  bool operator==(const AliveEvent&) const = default;
};

// A message for people.
struct LogEvent {
  static constexpr std::string_view kName = "log";
  std::string text;
  bool operator==(const LogEvent&) const = default;
};

// Steps and checkpoints.

// Costs of a step's exchange of tokens and experts. Bytes are received ones, of all ranks; the rest
// is the rank's own.
struct ExpertExchange {
  uint64_t token_bytes = 0;    // rows of tokens, to experts and back, and their gradients
  uint64_t restore_bytes = 0;  // weights of the experts that ranks compute
  uint64_t reshard_bytes = 0;  // gradients for the owners of experts
  // Communication of MoE layers (token all-to-all, restore, re-shard), with packing, adding up and
  // waits for peers that come late:
  double exposed_ms = 0;      // on the rank's thread, or while that waited for it
  double hidden_ms = 0;       // on the communication thread, while the rank's did not wait for it
  uint64_t plan_waits = 0;    // 1: the step's plan was not ready
  double plan_wait_ms = 0;    // until it was
  uint64_t memory_bytes = 0;  // peak of this group's store
  uint64_t memory_bound = 0;  // sharded: its limit (parallel/sharded_store.h)
  bool operator==(const ExpertExchange&) const = default;
};

// The rank completed `step`.
struct StepEvent {
  static constexpr std::string_view kName = "step";
  uint32_t loss_bits = 0;       // fp32
  bool applied = true;          // false: skipped, the loss or the gradient is not finite
  double ms = 0;                // from step boundary to step boundary, snapshot and waits included
  double waited_ms = 0;         // of these: in collectives
  double stall_ms = 0;          // of these: the stall (trainer/rank/snapshot_stall.h)
  double room_ms = 0;           // of the stall: until an earlier snapshot was written
  double slabs_ms = 0;          // of the stall: until a slab was free, or ckptd answered
  uint32_t snapshots_open = 0;  // on their way to the disk when the snapshot was begun
  double learning_rate = 0;
  double gradient_norm = 0;
  int64_t busiest_rows = 0;  // ExpertLoad
  double max_over_mean = 0;  // ExpertLoad
  ExpertExchange experts;
  double plt = 0;  // as in Relayout
  double plt_rollback = 0;
  // Only with RankOptions::report_routing.
  std::vector<int64_t> routed;  // tokens to each expert in this step, by ExpertGrid index
  // In the first step after a resume: the step of the commit, and the step of each expert's
  // version.
  int64_t resumed_at = -1;  // -1: not the first step
  std::vector<int64_t> resumed_versions;
  // In the first step after lost experts were restored: their grid indices, and the step of each
  // one's version, -1 for the seed.
  std::vector<uint32_t> rolled_back;
  std::vector<int64_t> rolled_back_to;
  bool operator==(const StepEvent&) const = default;
};

// Activities of the rank's two threads in the MoE layers of `step`. Only in the first steps of a
// run with RankOptions::trace_schedule.
struct ScheduleEvent {
  static constexpr std::string_view kName = "schedule";
  // Each [activity, lane, layer, begin, end]: numbers of Activity and Lane (model/step_profile.h),
  // times in ns by CLOCK_MONOTONIC.
  std::vector<std::array<int64_t, 5>> spans;
  uint64_t left_out = 0;  // further spans
  bool operator==(const ScheduleEvent&) const = default;
};

// The ranks begin the snapshot of `step`. From rank 0; sizes are of all ranks.
struct TakingEvent {
  static constexpr std::string_view kName = "taking";
  uint64_t bytes = 0;
  uint64_t bytes_kept = 0;      // of these: stay in memory, and are not written
  uint64_t rank_bytes_max = 0;  // largest share of a rank
  double rank_bytes_mean = 0;
  // Grid indices of experts, only with RankOptions::report_routing.
  std::vector<uint32_t> experts;         // that are written
  std::vector<uint32_t> memory_experts;  // that stay in memory
  bool operator==(const TakingEvent&) const = default;
};

// The snapshot of `step` is durable, or failed.
struct SnapshotEvent {
  static constexpr std::string_view kName = "snapshot";
  bool durable = false;
  std::string reason;      // why it failed
  int32_t detail = 0;      // ckpt::ErrorDetail of the failure
  bool no_answer = false;  // it failed because ckptd did not answer
  uint64_t taken_in = 0;   // epoch, possibly over; 0: the rank's newest
  uint64_t bytes = 0;
  double stall_ms = 0;    // its stall, of a failed one too
  double durable_ms = 0;  // from begin until the rank knew
  ckpt::SnapshotTimings timings;
  bool operator==(const SnapshotEvent&) const = default;
};

// Training waits with the snapshot of `step` until earlier ones are written, or a slab is free.
// Once for each wait, while it lasts.
struct StallingEvent {
  static constexpr std::string_view kName = "stalling";
  double waited_ms = 0;         // so far
  uint32_t snapshots_open = 0;  // as of StepEvent
  bool operator==(const StallingEvent&) const = default;
};

// The snapshot that is due after `step` waits for ckptd to answer. From rank 0, once.
struct PostponedEvent {
  static constexpr std::string_view kName = "postponed";
  bool operator==(const PostponedEvent&) const = default;
};

// The pace from `step` on. From rank 0.
struct PacingEvent {
  static constexpr std::string_view kName = "pacing";
  std::string reason;
  CheckpointPace pace;
  bool operator==(const PacingEvent&) const = default;
};

// The rank writes the last checkpoint, of `step`.
struct SavingEvent {
  static constexpr std::string_view kName = "saving";
  bool operator==(const SavingEvent&) const = default;
};

// The last checkpoint, of `step`, is durable: the run is complete, or stopped.
struct SavedEvent {
  static constexpr std::string_view kName = "saved";
  std::string reason;  // why the ranks stopped by themselves; empty: they did not
  bool operator==(const SavedEvent&) const = default;
};

// A line about checkpoints that the supervisor printed. Only the supervisor writes this event.
struct NoticeEvent {
  static constexpr std::string_view kName = "notice";
  std::string text;
  bool operator==(const NoticeEvent&) const = default;
};

using EventBody =
    std::variant<JoiningEvent, ConnectingEvent, RestoringEvent, TrainingEvent, GroupLostEvent,
                 RegroupingEvent, DrainedEvent, ReplannedEvent, DyingEvent, FatalEvent, AliveEvent,
                 LogEvent, StepEvent, ScheduleEvent, TakingEvent, SnapshotEvent, StallingEvent,
                 PostponedEvent, PacingEvent, SavingEvent, SavedEvent, NoticeEvent>;

// True for the named kinds. Handlers of events use it to treat several kinds alike:
//   template <OneOf<SavedEvent, FatalEvent> Last>
//   void on(const EventHeader& at, const Last&);
// A handler without a catch-all template does not compile when a kind is added that it misses.
template <typename Event, typename... Kinds>
concept OneOf = (std::same_as<Event, Kinds> || ...);

}  // namespace moetrain
