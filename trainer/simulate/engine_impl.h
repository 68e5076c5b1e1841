// Engine: the state of one simulation. engine.cc advances time; engine_recover.cc has the costs and
// effects of changes of the nodes.
#pragma once

#include <optional>

#include "trainer/simulate/checkpoints.h"
#include "trainer/simulate/engine.h"

namespace moetrain::simulate {

class Engine {
 public:
  Engine(const Scenario& scenario, const System& system, const SystemOptions& options);
  Result<Outcome> run();

 private:
  // --- time (engine.cc) ---
  // Time of the next event of the trace, or of its end.
  Micros next_event() const;
  // Applies all events at that time. True if a node in `busy` was lost.
  bool apply_events(const std::vector<bool>& busy);
  // Lets `duration` pass as `kind` with the nodes in `busy`. False if one of them was lost, or the
  // trace ended; the time until then has passed.
  bool spend(Kind kind, Micros duration, const std::vector<bool>& busy);
  void pass(Kind kind, Micros duration);
  void idle();
  Status train();
  Status at_boundary();
  uint64_t steps_until_boundary() const;
  void do_steps(uint64_t count);
  void lose_node(Micros into_step);
  void update_pace();
  Micros pace(const Groups& groups, uint32_t epoch) const;
  void note_curve();
  Outcome outcome() const;

  // --- checkpoints (engine_recover.cc) ---
  // False if a node was lost, or the trace ended, while the checkpoint blocked training.
  bool take_checkpoint();
  double snapshot_bytes(size_t experts) const;

  // --- nodes that come and go (engine_recover.cc) ---
  uint32_t nodes_needed() const;
  uint32_t usable_nodes() const;
  Status form();
  Status join();
  Status replan();
  // The groups if they were formed anew; groups without a loss keep their plans, unless
  // all are to be planned for the loads of `epoch`.
  Result<Regrouped> regroup_now(bool plan_all);
  uint32_t plan_epoch() const;
  void adopt(Regrouped regrouped);
  // Method and duration of a recovery.
  struct Way {
    Micros duration = 0;
    const Checkpoint* from = nullptr;  // source of the restored state, if a checkpoint
    bool from_memory = false;          // it is in the nodes' memory
    bool rewind = false;               // all state is restored; else only these experts:
    std::vector<uint32_t> lost;
  };
  Way find_way(const Regrouped& regrouped) const;
  Way restart_way(const Groups& groups) const;
  Micros reading(const Groups& groups) const;
  void take_way(const Way& way);
  std::vector<int64_t> held_after(const Checkpoint& view, bool from_memory) const;
  Micros detection() const;
  Micros regrouping() const;
  Micros moving(double bytes) const;

  const CostModel& model_;
  const NodeTrace& trace_;
  const LoadModel& load_;
  Planner& planner_;
  const System& system_;
  const SystemOptions& options_;

  Micros now_ = 0;
  size_t event_ = 0;  // the next of trace_.events
  Cluster cluster_;
  Micros join_due_ = kNever;
  std::array<Micros, kKinds> time_{};

  Groups groups_;
  std::vector<bool> member_;  // [node]: in a group
  Micros grouped_at_ = 0;
  bool started_ = false;   // there has been a group
  bool training_ = false;  // the groups are complete and hold the state of progress_
  bool noticed_ = true;    // the loss of a node has been detected

  Progress progress_;
  Micros step_time_ = 1;
  uint64_t ranks_ = 0;
  uint64_t next_checkpoint_ = 0;  // steps
  uint64_t next_replan_ = 0;
  Checkpoints checkpoints_;
  std::optional<ExpertAges> ages_;
  size_t unsent_ = 0;   // experts whose versions are not in the shared store,
  size_t sending_ = 0;  // and those in transfer to the store

  Outcome outcome_;
};

}  // namespace moetrain::simulate
