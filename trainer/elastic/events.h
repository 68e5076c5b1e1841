// Events: what a rank process tells its supervisor, one JSON object per line, through a pipe.
//
// A pipe keeps what was written when the writer dies by kill -9: the supervisor sees the last step
// and the last words of a rank that is gone.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

// The descriptor a rank process finds its end of the pipe on.
inline constexpr int kEventFd = 3;

struct RankEvent {
  enum class Kind : uint8_t {
    kJoining,     // asks for the next epoch, and waits until all have
    kConnecting,  // joined `epoch`, makes its connections
    kRestoring,   // connected; brings its state to where the epoch starts
    kTraining,    // state is in place, the next step is `step` + 1
    kStep,        // completed `step`
    kTaking,      // begins the snapshot of `step`: what all ranks bring to it; from rank 0
    kSnapshot,    // the snapshot of `step` is durable, or failed for the reason `text`
    kSaving,      // writes the last checkpoint, of `step`
    kDying,       // about to kill itself in `step`, as asked
    kGroupLost,   // a peer of `epoch` is gone or hangs (`text`); will join the next one
    kLog,         // `text` for people
    kSaved,       // the last checkpoint, of `step`, is durable: the run is complete or was stopped,
                  // by itself because of `text`
    kFatal,       // gives up because of `text`; a restart would not help
    kPacing,      // how often checkpoints are taken from `step` on, and why (`text`); from rank 0
    kDrained,     // left the group in good order, as it was asked to: the others have its state
    kAlive,       // says nothing else: the process runs (heartbeat.h)
    kReplanned,   // looked at the placement after `step`, and moved experts or not; from rank 0
    kRegrouping,  // leaves `epoch` together with its peers (`text`), to join the next one
    kPostponed,   // the snapshot due after `step` waits for ckptd to answer; from rank 0, once
    kNotice,      // `text`, what the supervisor told people about checkpoints; `step` is complete
  };
  Kind kind = Kind::kLog;
  uint32_t rank = 0;
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC, the same for all processes of a machine
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::string text;
  int64_t pid = 0;  // kJoining: of the rank's process
  // kTraining
  bool resumed = false;
  uint64_t lineage = 0;     // what the epoch commits to
  std::string collectives;  // of what lies on GPUs: "nccl", or "host" through host memory
  uint64_t bytes_memory = 0;
  uint64_t bytes_disk = 0;
  std::vector<uint32_t> stale_units;
  int64_t lost_tokens = 0;  // by experts that are older than the view, or than the others
  // kTraining: what is known of failures, and for how long the run has trained
  uint64_t failures = 0;
  double training_ms = 0;
  // kTraining, kPacing: steps from one checkpoint to the next (0: only the last), experts of each
  // layer that are written, and those together with the ones that stay in memory
  uint64_t checkpoint_every = 0;
  uint32_t experts_per_checkpoint = 0;
  uint32_t experts_per_snapshot = 0;
  // kTraining of an elastic group; bytes and times of kDrained and kRegrouping as well, of what was
  // moved before anybody left
  bool goes_on = false;
  bool joins = false;               // as one that has no state yet
  uint32_t group = 0;               // ranks of the epoch
  uint32_t effective_replicas = 0;  // the least of any expert, in distinct domains
  uint64_t bytes_moved = 0;         // between all ranks
  double regroup_ms = 0;            // since it lost its group: to be connected with the new one
  double plan_ms = 0;               // then to have agreed, and planned
  double migrate_ms = 0;            // then for the state to be in place
  // kReplanned; bytes_moved, plan_ms and migrate_ms as above, bytes_moved of what was not moved,
  // too
  bool moved = false;
  double balance_before = 0;  // maximum over mean of the ranks' tokens since the last look
  double balance_after = 0;   // the same tokens, under the placement that was planned
  double gain_ms = 0;         // ReplanChoice
  double cost_ms = 0;
  uint32_t layer = 0;       // the worst layer before: [rank] its experts then and afterwards
  LayerSlots slots_before;  // its tokens are in `routed`
  LayerSlots slots_after;
  // kTraining, kStep: the proportion of lost tokens so far, and of that the part of rollbacks
  double plt = 0;
  double plt_rollback = 0;
  // kTraining: tokens lost so far by each position of the grid, empty if none were; of the experts
  // that nobody held any more how many had no version to come back from
  std::vector<int64_t> lost;
  uint64_t experts_from_seed = 0;
  // kStep
  uint32_t loss_bits = 0;
  bool applied = true;
  double ms = 0;         // from boundary to boundary: snapshot, waiting for other ranks, the step
  double waited_ms = 0;  // of which in collectives: for other ranks, and for their bytes
  double stall_ms = 0;   // of which blocked by a snapshot; kSnapshot: the same, of that snapshot
  double room_ms = 0;    // of which until an earlier snapshot was written
  double slabs_ms = 0;   // of which until a slab was free, or ckptd answered
  uint32_t snapshots_open = 0;  // on their way to the disk when this one was begun
  double learning_rate = 0;
  double gradient_norm = 0;
  int64_t busiest_rows = 0;  // ExpertLoad
  double max_over_mean = 0;
  // kStep, if asked for: tokens to every expert in this step; in the first step after a resume
  // where the run resumed and the step of every expert's version; in the first step after experts
  // came back alone which they were and the step of each one's version, -1: that of the seed.
  // kReplanned: tokens to every expert of `layer` since the last look.
  std::vector<int64_t> routed;
  int64_t resumed_at = -1;
  std::vector<int64_t> resumed_versions;
  std::vector<uint32_t> rolled_back;
  std::vector<int64_t> rolled_back_to;
  // kTaking: positions in the grid of layers and experts, if asked for; of the bytes that each rank
  // brings the largest and the mean
  std::vector<uint32_t> experts;
  std::vector<uint32_t> memory_experts;  // those that stay in memory
  uint64_t rank_bytes_max = 0;
  double rank_bytes_mean = 0;
  uint64_t bytes_kept = 0;  // of `bytes`: stay in memory, and are not written
  // kSnapshot
  bool durable = false;
  uint64_t taken_in = 0;  // the epoch; the rank may be in a later one by now
  uint64_t bytes = 0;     // of this rank; kTaking: of all
  double durable_ms = 0;
  bool no_answer = false;  // it failed as ckptd did not answer
  // kFatal: an ErrorCode
  int code = 0;
  bool operator==(const RankEvent&) const = default;
};

std::string_view kind_name(RankEvent::Kind kind);

// One line, newline included. Fields that have their default value are left out, but not `rank`,
// which is null for an event of the supervisor.
// `time` is time_ns by the wall clock, in UTC; `loss_bits` is 8 hex digits.
std::string to_line(const RankEvent& event);
// kInvalidArgument for anything but a line of to_line().
Result<RankEvent> parse_event(std::string_view line);

// Cuts a stream of bytes into events.
class EventReader {
 public:
  void append(std::string_view bytes);
  // The whole lines that have come in, in order. A line that is no event becomes a kLog event.
  std::vector<RankEvent> take();

 private:
  std::string buffer_;
};

// Writes events to a descriptor, in whole lines, from any thread. Errors are ignored: a rank
// outlives its supervisor by no more than a signal.
class EventWriter {
 public:
  EventWriter(int fd, uint32_t rank) : fd_(fd), rank_(rank) {}
  void write(RankEvent event);
  void log(const std::string& text);

 private:
  const int fd_;
  const uint32_t rank_;
  std::mutex writing_;  // a line that is longer than a pipe's buffer is written in pieces
};

uint64_t monotonic_ns();
double ms_between(uint64_t from_ns, uint64_t to_ns);  // 0 if `to` is not later

}  // namespace moetrain
