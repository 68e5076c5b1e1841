// RankRun: the state of one rank process and what it does in each epoch.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/checkpoint/restored_versions.h"
#include "trainer/checkpoint/snapshotter.h"
#include "trainer/data.h"
#include "trainer/elastic/epoch_watch.h"
#include "trainer/elastic/live_state.h"
#include "trainer/elastic/member.h"
#include "trainer/elastic/next_placement.h"
#include "trainer/elastic/rank.h"
#include "trainer/elastic/replanner.h"
#include "trainer/loop.h"
#include "trainer/partial/pacer.h"

namespace moetrain {

class RankRun {
 public:
  RankRun(const RankOptions& options, EventWriter& events, const std::atomic<bool>& stop,
          const std::atomic<bool>& drain)
      : options_(options), events_(events), stop_(stop), drain_(drain) {}

  // To the last saved step. Any error is final.
  Status run();

 private:
  enum class Ending { kSaved, kGroupLost, kDrained };
  // Errors that come from a peer's loss, directly or because somebody aborted.
  static bool is_group_loss(const ckpt::Error& error);
  // What the ranks agree on at a step boundary, before anything else: the largest of each.
  struct Boundary {
    bool stop = false;             // somebody was asked to stop
    bool away = false;             // somebody has no connection to ckptd
    uint64_t failed_snapshot = 0;  // somebody could not contribute to the snapshot of this step
    uint64_t lost_snapshot = 0;    // somebody has learned that the one of this step has failed
    bool drain = false;            // somebody was asked to leave
    bool joiners = false;          // somebody knows of processes that wait to be let in
    bool retake = false;           // a snapshot failed as ckptd did not answer somebody
  };
  // Of a step: its regular snapshot; those of the last checkpoint have the numbers that follow.
  static constexpr uint32_t kRegularAttempt = 0;
  // For ckptd to hear that this rank leaves in good order.
  static constexpr uint32_t kLeaveMs = 1'000;

  Status prepare();
  // Sets the model up for this placement, as this rank of it: experts that it does not hold yet are
  // zero.
  Status hold(const ExpertPlacement& placement, uint32_t rank);
  // That a group begins with.
  Result<ExpertPlacement> placement_of(const RankGroup& group) const;
  // For people, once, where GPUs have to exchange through host memory.
  void tell_collectives(const DeviceCollectives& collectives);
  // One epoch, from joining it to its end.
  Result<Ending> run_epoch();
  // Brings the model and the progress to where the epoch starts; `event` will tell of it.
  Status restore(const ckpt::client::Epoch& epoch, RankEvent& event);
  Status take_over(const ckpt::client::ViewPoint& view);
  // All ranks learn of the experts that each has restored. The rest of a resume.
  Status settle(Comm& comm, const ckpt::client::ViewPoint& view, RankEvent& event);
  // All ranks come to the same version of each unit, whatever each could read.
  Status same_versions(Comm& comm, uint32_t lineage, std::vector<RestoredUnit> mine,
                       RankEvent& event);
  Result<VersionSpread> compare_versions(Comm& comm, const std::vector<RestoredUnit>& mine);
  // Is all of the view there that every snapshot takes? If not, the next epoch begins where it is.
  Status check_whole(Comm& comm, const ckpt::client::ViewPoint& view);
  // rank_run_elastic.cc. An epoch that goes on: to the same step with the same state as the others.
  Status go_on(Comm& comm, const ckpt::client::Epoch& epoch, RankEvent& event);
  Status change_places(Comm& comm, const PlanPlacement& planner, uint32_t lineage,
                       RankEvent& event);
  void tell_rollback(const LiveState::Settled& settled, uint32_t k_before, RankEvent& event);
  void settle_snapshots(const ckpt::client::Epoch& epoch);
  // All ranks agree whether the last step is durable, because they retry together. False: save
  // again.
  Result<bool> saved_in_the_end(Comm& comm);
  PlanPlacement planner(const std::vector<bool>& stays) const;
  // What is being staged on a GPU is gathered before anything that is queued from here on writes to
  // the model's state, or to memory that it gives up.
  void settle_device();
  Trainer::BeforeWrite before_write();
  Result<StepResult> plain_step(Comm& comm);
  Result<StepResult> all_or_none_step(Comm& comm);
  struct StepTime {
    double ms = 0;         // from boundary to boundary
    double waited_ms = 0;  // in collectives
  };
  void report_step(const StepResult& result, const StepTime& time);
  // Those who were asked to leave hand their state over; then they leave, and the others go on.
  Result<Ending> drain(Comm& comm);
  // All leave together, and meet again with those who wait.
  Ending let_in(Comm& comm);
  // The group is left in agreement; `change` tells of what was done before.
  Ending regroup(const std::string& reason, RankEvent change);
  // All leave, for the same reason, and nobody is lost.
  Ending leave_together(Comm& comm, const std::string& reason);
  void enter_phase(std::string_view phase);
  void kill_if_asked(uint64_t step);
  void leave_if_asked(uint64_t step);
  // From boundary to boundary. An error of the communicator means that the group is lost.
  Result<Ending> train(Comm& comm);
  // The boundary of a step. If the ranks know already that a snapshot is due, they begin it before
  // they meet: ckptd leases slabs meanwhile. What was begun is then to be filled, or dropped.
  Result<Boundary> meet(Comm& comm, bool snapshot_due = false);
  Status one_step(Comm& comm);
  // A dropless step gives every token to top-k experts of each layer.
  Status check_step_routing(std::span<const int64_t> routed) const;
  bool snapshot_is_due();
  Snapshotter::BackPressure usual_pressure() const;
  // The snapshot of the current step. Where one of the two fails, that is reported, and told to the
  // others when they meet.
  Status begin_snapshot(Result<Snapshotter::Request> wanted,
                        const Snapshotter::BackPressure& pressure);
  Status fill_snapshot(const Snapshotter::BackPressure& pressure);
  // The same for a regular snapshot, whose failure is reported only.
  void fill_regular();
  // After the ranks have met: fills what was begun `early`, or takes what is due, or neither.
  void snapshot_at(const Boundary& boundary, bool early);
  void drop_snapshot(const std::string& reason);
  Status snapshot_failed(ckpt::Error error, bool without_answer);
  void add_waits(const Snapshotter::Waits& before, uint64_t silence_ms);
  // The error of a snapshot that failed because ckptd did not answer.
  ckpt::Error no_answer() const;
  // What the next one takes. Every rank asks for the same ones in the same order.
  Result<Snapshotter::Request> request(uint32_t attempt, bool full);
  void describe(Snapshotter::Request& request) const;
  Result<Ending> save_last(Comm& comm);
  std::chrono::steady_clock::time_point save_end();
  uint32_t save_ms_left();
  // Is it that the lineage went on from a step it has a commit of? It can have no other, and that
  // one may be partial, or of experts that came back older since: nothing ends before the next
  // step.
  bool saved_before() const { return went_on_ && saved_step_ == progress_.step; }
  // rank_run_pace.cc: how often, and how many experts.
  PaceOptions pace_options() const;
  Pacer::Came came() const;
  Status settle_pace(Comm& comm, const RankEvent& event);
  void pace_of_change(uint32_t k_before, int64_t lost_tokens);
  // "; 4 experts of each layer from now on, 2 before"; empty if k is as before.
  std::string k_change_text(uint32_t k_before) const;
  bool overspends() const;
  void tell_agreed(RankEvent& event) const;
  Status pace(Comm& comm);
  void follow_pacer();
  void tell_pace();
  // rank_run_replan.cc: experts that move while the members stay.
  ReplanOptions replan_options() const;
  Status replan(Comm& comm);
  Status move_experts(Comm& comm, const ExpertPlacement& next, RankEvent& event);
  void report_snapshots();
  void report_snapshot(const SnapshotOutcome& outcome, bool without_answer = false);
  Ending leave_group(Comm* comm, const std::string& reason);
  // Where the last checkpoint is, for messages: "run tiny step 30".
  std::string where() const;

  const RankOptions& options_;
  EventWriter& events_;
  const std::atomic<bool>& stop_;
  const std::atomic<bool>& drain_;

  std::string config_json_;  // what every snapshot has of the configuration
  std::optional<Corpus> corpus_;
  std::vector<StateUnit> units_;
  ExpertPlacement placement_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::vector<std::byte> trainer_unit_;
  std::optional<StateMemory> memory_;
  std::optional<Trainer> trainer_;
  std::optional<Member> member_;
  std::unique_ptr<DeviceLink> link_;  // where the device is a GPU
  std::string told_collectives_;      // why they are not NCCL's: said already
  Progress progress_;
  std::optional<PartialCheckpoint> partial_;
  PartialState saved_partial_;  // as it was restored
  std::optional<Pacer> pacer_;
  PaceState saved_pace_;  // as it was restored
  std::optional<Replanner> replanner_;
  bool trained_ = false;                                 // this process, in an epoch before
  std::chrono::steady_clock::time_point left_training_;  // when it last left an epoch, or began
  std::optional<ExpertStamps> stamps_;
  std::optional<LiveState> live_;
  uint32_t rank_ = 0;                // of the current epoch
  std::optional<uint64_t> lost_ns_;  // when the last group was lost; until the next one trains

  // Of the current epoch.
  uint64_t epoch_ = 0;
  RankGroup group_;
  std::string stopped_because_;  // the run is to end here, and what is saved is the last
  std::optional<Snapshotter> snapshotter_;
  std::optional<EpochWatch> watch_;       // while it trains
  bool went_on_ = false;                  // it began with the state of survivors
  uint64_t saved_step_ = 0;               // the newest step that is saved or on its way
  std::optional<uint64_t> durable_step_;  // the step of the snapshot that became durable last
  std::vector<RestoredUnit> restored_;    // as the epoch began
  bool snapshot_due_ = false;             // a snapshot waits for ckptd to be back
  bool postponed_ = false;                // that was told
  // A snapshot failed because ckptd was silent; the other ranks learn it at the next boundary.
  bool retake_ = false;
  bool away_ = false;  // somebody was without ckptd when the ranks met last
  // A snapshot failed, and none has been durable since: ckptd may hang, and not every step shall
  // wait for it as long as the first one did.
  bool waited_in_vain_ = false;
  RankEvent taking_;                                // of the snapshot that was begun
  std::chrono::steady_clock::time_point boundary_;  // when this step began, meeting included
  int64_t waited_before_ns_ = 0;                    // Comm::waited_ns() then
  std::set<uint64_t> failed_snapshots_;             // not yet told to the others
  std::set<uint64_t> lost_snapshots_;               // nor these, that failed later; also of epochs
                                                    // before, where the group has gone on
  int64_t resumed_at_ = -1;
  std::vector<int64_t> resumed_versions_;
  std::vector<uint32_t> rolled_back_;    // since the last step was reported
  std::vector<int64_t> rolled_back_to_;  // their versions
  bool resumed_whole_ = true;       // no expert was restored from an older checkpoint than the rest
  std::vector<int64_t> in_memory_;  // experts restored from versions that no disk has: not 0
  double stall_ms_ = 0;             // since the last step was reported
  Snapshotter::Waits waits_;        // parts of `stall_ms_`: wait for room, wait for slabs
  float last_loss_ = 0;
  // Deadline of the last checkpoint; unset while the ranks train.
  std::optional<std::chrono::steady_clock::time_point> save_end_;
};

}  // namespace moetrain
