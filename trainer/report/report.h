// Report: result of a training run and cost of its failures; the struct behind `--report FILE`.
//
// JSON (stable fields; readers ignore fields they do not know):
//   {ranks, steps, tokens_per_step, final_loss, losses:[{step, loss, loss_bits}],
//    step_ms:{p50, p99},
//    checkpoints:{count, bytes, bytes_kept, stall_ms_total, stall_ms_max, durable_ms_p50,
//                 rank_bytes:{max, mean, max_over_mean},
//                 each:[{step, bytes, bytes_kept, rank_bytes_max, rank_bytes_mean, stall_ms,
//                        durable_ms, parts_ms:{plan, begin, slab_wait, copy, seal, write, sync,
//                                              journal}}]},
//    checkpoint_every, experts_per_checkpoint, experts_per_snapshot, reason,
//    on_loss, on_loss_reason,
//    failures:[{step, at_step, ranks, detected_ms, resumed_ms, steps_lost,
//               bytes:{replica, memory, disk, peer, tier}, stale_units, group,
//               effective_replicas, split_ms:{detect, regroup, plan, migrate, first_step}}],
//    daemon_failures:[{step, down_ms}],
//    saved_step, unsaved:[{since, until, ms, cause, saved}],
//    changes:[{step, joined, left, group, effective_replicas, bytes_moved, plan_ms, migrate_ms,
//      memory_bytes, memory_bound}],
//    replans:[{step, moved, max_over_mean:{before, after}, gain_ms, cost_ms, bytes, plan_ms,
//              migrate_ms, layer, loads, ranks:{before, after}}],
//    rank_times:[{rank, steps, own_ms, waited_ms, slowest, more_ms}], plt,
//    loads:[{step, busiest_tokens, max_over_mean}], max_over_mean,
//    exchange:{steps, token_bytes, restore_bytes, reshard_bytes, exposed_ms, hidden_ms, plan_waits,
//              plan_wait_ms, memory_bytes, memory_bound}}
// max_over_mean beside loads is their mean, null without any; exchange is null if unknown.
// detected_ms is null if the time of the loss is unknown,
// resumed_ms and down_ms are null if ranks or ckptd did not recover; group and the fields after
// it exist if survivors continued.
// final_loss is null if no step was done, or its loss is not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "formats/base/snapshot_timings.h"
#include "formats/base/unique_fd.h"

namespace moetrain::report {

// The loss of one step. In JSON `loss` is for people and null if the loss is not finite;
// `loss_bits`, the 8 hex digits of the fp32, is exact, and parse() reads it.
struct LossPoint {
  uint64_t step = 0;
  float loss = 0;
};

// Balance of a step's expert load over the ranks, replicas included.
struct StepLoad {
  uint64_t step = 0;
  // Tokens of the busiest rank of each layer and micro-batch, added up; a token counts once
  // for each expert it goes to.
  uint64_t busiest_tokens = 0;
  double max_over_mean = 0;  // busiest_tokens over the mean of ranks; 1: perfectly even
};

// Restored bytes by source.
struct BytesBySource {
  uint64_t replica = 0;  // held by another rank
  uint64_t memory = 0;   // staged or durable slabs still in ckptd's arenas
  uint64_t disk = 0;     // this node's segments
  uint64_t peer = 0;     // another node's ckptd
  uint64_t tier = 0;     // the remote store
  uint64_t total() const { return replica + memory + disk + peer + tier; }
};

// A loss of trainer ranks.
struct Failure {
  uint64_t step = 0;  // the last step that some rank completed before it
  // The step that the first lost rank was in. Other ranks may have completed it. 0: in a report
  // older than this field.
  uint64_t at_step = 0;
  // The step to show to users.
  uint64_t display_step() const { return at_step != 0 ? at_step : step; }
  std::vector<uint32_t> ranks;  // lost together; empty: no rank died, but the group was lost
  // From the loss until the supervisor knew. Null if unknown: a rank killed from outside cannot
  // report the time.
  std::optional<double> detected_ms;
  // From the loss, or its first sign, until the group trained again; null: it never did.
  std::optional<double> resumed_ms;
  uint64_t steps_lost = 0;   // completed steps that were redone
  BytesBySource bytes;       // restored, by all ranks together
  uint64_t stale_units = 0;  // units restored from an older step than the resume point
  uint64_t lost_tokens = 0;  // tokens behind the updates that stale units lack
  // Experts that no rank held and no checkpoint had: restarted from the seed.
  uint64_t experts_from_seed = 0;
  // If survivors continued: the number of ranks left, the least number of failure domains that
  // hold an expert since then, and the time from the loss to the next completed step. Each part
  // starts at the end of the previous one and ends when the last rank has completed it. So the
  // parts add up to the whole.
  uint32_t group = 0;  // 0: all resumed
  uint32_t effective_replicas = 0;
  struct Split {
    double detect = 0;      // until all survivors knew
    double regroup = 0;     // until they were connected with each other
    double plan = 0;        // until they had agreed on the step and the placement
    double migrate = 0;     // until all state was in place
    double first_step = 0;  // until the next step was complete; 0: none was
  } split_ms;
};

// Ranks joined, or left on request.
struct MemberChange {
  uint64_t step = 0;             // the last step before it
  std::vector<uint32_t> joined;  // numbers of processes, as in Failure::ranks
  std::vector<uint32_t> left;
  uint32_t group = 0;               // ranks afterwards
  uint32_t effective_replicas = 0;  // the least number of failure domains that hold an expert
  uint64_t bytes_moved = 0;         // between all ranks
  // The slowest rank: time to agree on step and placement, then time to move all state.
  double plan_ms = 0;
  double migrate_ms = 0;
  // Sharded experts: peak of expert tensors on the rank with most while ranges moved (old, new and
  // buffers), and its bound. 0: replicated experts, or a report older than
  // this field.
  uint64_t memory_bytes = 0;
  uint64_t memory_bound = 0;
};

// A loss of ckptd itself: training continues, snapshots wait until it is restarted.
struct DaemonFailure {
  uint64_t step = 0;              // the last step that was completed before it
  std::optional<double> down_ms;  // until it was ready again; null: it never was
};

// Steps without a checkpoint: ckptd did not answer, checkpoints failed, or the run ended early.
struct Unsaved {
  uint64_t since = 0;  // the newest saved step at its begin
  uint64_t until = 0;  // the step that ended it by being saved, or the last unsaved one
  double ms = 0;
  std::string cause;
  bool saved = false;  // `until` is saved
};

// The ranks checked their placement while their members stayed (trainer/elastic/replanner.h).
struct Replan {
  uint64_t step = 0;   // the last one before it
  bool moved = false;  // false: a move did not pay, and experts stayed
  // Balance of the tokens since the last check: under the old placement, and under the planned one.
  double max_over_mean_before = 1;
  double max_over_mean_after = 1;
  double gain_ms = 0;  // predicted, until the next re-plan
  double cost_ms = 0;  // predicted
  uint64_t bytes = 0;  // to be moved between all ranks
  double plan_ms = 0;
  double migrate_ms = 0;  // 0 if nothing moved
  // The layer that was most uneven before: tokens to every expert since the last check, and the
  // experts in each rank's slots, [rank], which hold every expert.
  uint32_t layer = 0;
  std::vector<uint64_t> loads;
  std::vector<std::vector<uint32_t>> ranks_before;
  std::vector<std::vector<uint32_t>> ranks_after;
};

// Time of a rank, and how often the others waited for it.
struct RankTime {
  uint32_t rank = 0;   // its process's number
  uint64_t steps = 0;  // completed together with all others of its group
  // Means per step: time outside of collectives and snapshots, and time in collectives, where the
  // rank waits for others. Both of the rank's own thread: work of its communication thread counts
  // only in `waited_ms`, while the rank's thread waits for it.
  double own_ms = 0;
  double waited_ms = 0;
  uint64_t slowest = 0;  // steps in which it had the most work of its own
  double more_ms = 0;    // extra time in those steps, over the mean of the others
};

// The exchange of tokens and experts between ranks: what a step received and waited for.
struct ExpertExchange {
  uint64_t steps = 0;
  // Received by all ranks in a step, mean: rows of tokens and their gradients, weights of
  // experts, gradients of experts.
  double token_bytes = 0;
  double restore_bytes = 0;
  double reshard_bytes = 0;
  // Means over ranks and steps: communication of MoE layers that the rank waited for, and that ran
  // beside its computation. Both include waits for peers that are late to an exchange.
  double exposed_ms = 0;
  double hidden_ms = 0;
  // Steps whose plan was not ready, and the waits for it, the slowest rank of each step.
  uint64_t plan_waits = 0;
  double plan_wait_ms = 0;
  // Expert tensors of the rank with most. The bound is for sharded experts; 0: none.
  uint64_t memory_bytes = 0;
  uint64_t memory_bound = 0;
};

// A durable checkpoint.
struct Checkpoint {
  uint64_t step = 0;
  uint64_t bytes = 0;           // of all ranks
  uint64_t bytes_kept = 0;      // part of `bytes` in memory only, not written
  uint64_t rank_bytes_max = 0;  // contributed by the busiest rank
  double rank_bytes_mean = 0;
  double stall_ms = 0;            // the slowest rank
  double durable_ms = 0;          // until the last rank knew
  ckpt::SnapshotTimings timings;  // each part of the slowest rank

  double max_over_mean() const;  // 1 if it has no bytes
};

// Final interval of checkpoints, and its reason.
struct Pace {
  uint64_t every = 0;                 // steps; 0: only the last
  uint32_t experts = 0;               // of each layer, written
  uint32_t experts_per_snapshot = 0;  // written and memory-only ones; 0: unknown
  std::string reason;
};

// Configured reaction to the loss of a rank, "restart" or "continue", and who chose it.
struct OnLoss {
  std::string what;  // empty: in a report older than this field
  std::string reason;
};

struct Report {
  uint32_t ranks = 0;
  uint64_t steps = 0;
  uint64_t tokens_per_step = 0;
  std::vector<LossPoint> losses;  // ascending by step; of redone steps the loss that counted
  struct StepTime {
    double p50 = 0;
    double p99 = 0;
  } step_ms;
  struct Checkpoints {
    uint64_t count = 0;
    uint64_t bytes = 0;
    uint64_t bytes_kept = 0;  // part of `bytes` in memory only
    // Training blocked by snapshots, failed ones included: the slowest rank of each.
    double stall_ms_total = 0;
    double stall_ms_max = 0;
    double durable_ms_p50 = 0;  // from begin to the durable announcement
    std::vector<Checkpoint> each;

    // The checkpoint whose busiest rank contributed most.
    Checkpoint busiest() const;
  } checkpoints;
  Pace pace;
  OnLoss on_loss;
  std::vector<Failure> failures;
  std::vector<DaemonFailure> daemon_failures;
  uint64_t saved_step = 0;  // the newest durable or resumed step; 0: none
  std::vector<Unsaved> unsaved;
  std::vector<MemberChange> changes;
  std::vector<Replan> replans;
  std::vector<RankTime> rank_times;  // ascending by rank
  std::optional<ExpertExchange> exchange;
  double plt = 0;               // proportion of lost tokens, 0..1
  double plt_rollback = 0;      // the part of it lost by rolling back single experts
  std::vector<int64_t> lost;    // tokens, by expert, layer by layer; empty: none
  std::vector<StepLoad> loads;  // ascending by step; empty in older reports

  // The last loss, 0 without one.
  float final_loss() const { return losses.empty() ? 0.0F : losses.back().loss; }
};

// One JSON document with a final newline. Same report, same bytes.
std::string to_json(const Report& report);

// Reads the output of to_json; `origin` (a file name) starts every error message. Missing or
// mistyped fields, unordered steps and malformed bits are kInvalidArgument errors that name the
// field; `daemon_failures`, `changes`, `replans`, `rank_times`, `plt`, `loads`, `exchange`,
// `on_loss`, and the fields of each checkpoint and of the pace may be missing.
ckpt::Result<Report> parse_report(std::string_view json, std::string_view origin);
// kNotFound: the file cannot be opened; kInvalidArgument also if it is not a regular one.
ckpt::Result<Report> read_report(const std::string& path);

// Writes the file so that a reader sees the old content or the new one, never a part. Follows
// links: the file at their end is replaced. Output to an open descriptor (/dev/stdout) goes to it.
ckpt::Status write_file(const std::string& path, std::string_view content);
// Checks that write_file can write, as far as modes and folders tell; changes no file. kIo, naming
// the folder that cannot be written, if not. A pipe or a device is opened: as long as the
// descriptor is kept, a pipe's reader sees no end.
ckpt::Result<ckpt::base::UniqueFd> check_writable(const std::string& path);

}  // namespace moetrain::report
