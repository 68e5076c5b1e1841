// Pacer: decides when the next checkpoint is due and how many experts it takes, during a run.
//
// With fixed settings it returns those. With `auto` it collects its own rank's measurements. At
// steps that all ranks know beforehand, they agree on the largest value of each measurement, and
// all make the same choice from that (auto_config.h). So wall times decide nothing before they are
// agreed on. The agreed values are saved with every checkpoint: a resumed run continues with the
// settings in force at the checkpoint, and agrees anew from there.
//
// A resume does not rewind failures: survivors know them, restarted processes get them, and the
// largest count is agreed on when an epoch begins. Time is training time, as measured by the steps:
// the time between the end of a run and its resume does not count.
//
// If survivors continue, all members take over the agreed state of one of them: a choice that some
// ranks have received and others have not is in force on all or on none. A loss counts as a failure
// only if it took the last copy of an expert. A loss that replicas cover costs the same at any
// interval.
//
// A rollback loses the tokens since the last checkpoint, at any K. If a rollback exceeds the budget
// although all experts are written, the interval is halved, whether chosen or requested.
//
// Pure: numbers in, numbers out. Every rank has one and calls it at the same steps.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "trainer/partial/auto_config.h"

namespace moetrain {

using ckpt::Status;

struct PaceOptions {
  bool auto_every = false;
  bool auto_experts = false;
  bool memory = false;      // more experts are copied than written
  uint32_t k_snapshot = 0;  // experts of each layer in a snapshot; 0: as many as stay hidden
  uint64_t every = 0;       // steps, if not auto; 0: only the last step
  uint64_t turns = 0;  // if not auto: none for this many steps, then some for as many; 0: no turns
  uint32_t k = 0;      // experts of each layer, if not auto; 0: all
  uint32_t k_least = 1;  // if auto: fewer experts would not visit all in time
  uint32_t experts = 1;
  uint64_t dense_bytes = 0;   // of every checkpoint
  uint64_t expert_bytes = 0;  // of one expert in each layer
  AutoLimits limits;

  // True if there is anything to choose. Without regular checkpoints there is not.
  bool any() const { return auto_every || ((auto_experts || auto_memory()) && every != 0); }
  bool auto_memory() const { return memory && k_snapshot == 0; }
};

// State that a checkpoint stores.
struct PaceState {
  uint64_t every = 0;      // in force; 0: not chosen yet
  uint64_t widest = 0;     // the largest that was ever in force
  uint32_t k = 0;          // in force; 0: not chosen yet
  uint32_t k_min = 0;      // lower bound from dynamic K
  uint64_t taken = 0;      // step of the newest requested snapshot
  uint64_t decide_at = 0;  // step
  // Last agreed times: of a step, and of a snapshot with all experts. 0: not measured yet.
  int64_t step_ns = 0;
  int64_t stall_ns = 0;
  int64_t durable_ns = 0;
  int64_t restore_ns = 0;
  uint64_t failures = 0;
  int64_t seen_ns = 0;  // training time
  bool ended = false;   // saved at the end of the run, or when it was stopped
  uint32_t halved = 0;  // number of halvings by rollbacks that exceeded the budget
  bool operator==(const PaceState&) const = default;
};
// kInvalidArgument if no run of such a model can have saved this, as in a hostile checkpoint.
Status check_pace(const PaceState& state, uint32_t experts);

class Pacer {
 public:
  // How this process has entered an epoch that resumes.
  enum class ResumeCause : uint8_t {
    kSurvived,   // it trained in the previous epoch
    kRestarted,  // the supervisor started it in place of a dead one
    kResumed,    // `--resume latest`: a failure, unless the run had ended
    kChosen,     // `--resume STEP`: a deliberate rewind
  };

  explicit Pacer(const PaceOptions& options);

  // A run starts; `again`: an earlier start failed before it saved anything, seen by this process.
  void start(bool again = false);
  // A run resumes from a view at `step`. `known`: failures that the supervisor knows of.
  void resume(const PaceState& saved, ResumeCause cause, const FailureRecord& known, uint64_t step);
  // This rank's counts after resume(), and the agreed ones: the largest of each.
  std::vector<int64_t> resume_counts() const;
  void agree(std::span<const int64_t> counts);
  // A group continues at `step` with changed members, who all take over one member's state. Its
  // measurements no longer apply: the agreed values count until enough new ones exist.
  // kCorrupt if no run of such a model has such a pace; nothing is changed then.
  Status take_over(const PaceState& handed, uint64_t step);
  // In that change, experts were restored from checkpoints; time until training continued.
  void rolled_back(double ms);
  // Dynamic K requires at least k from now on.
  void raise_k(uint32_t k);
  // A rollback exceeded the budget although all experts are written: halves the
  // interval, but not below what storage sustains, as far as measured. False: it is already the
  // shortest.
  bool overspent();
  // The loss is within the budget again: restores the full interval.
  void within_budget() { state_.halved = 0; }
  bool is_halved() const { return state_.halved != 0; }

  // True if a checkpoint is due after `step`.
  bool due(uint64_t step) const;
  // A snapshot of `step` was requested, with these total and written bytes of all ranks.
  void taking(uint64_t step, uint64_t bytes, uint64_t written_bytes);
  // The snapshot of `step` is durable. Ignored if the step is no longer known.
  void durable(uint64_t step, double ms);
  // A step was completed. `ms` is without the stall; `snapshot`: the previous step's snapshot
  // caused the stall, if there was one.
  void stepped(double ms, double stall_ms, bool snapshot);
  // Time from a failure until training continued.
  void recovered(double ms) { restore_ns_ = static_cast<int64_t>(ms * 1e6); }

  // True if the ranks agree anew at this step, before anything else happens in it.
  bool decides_at(uint64_t step) const { return options_.any() && step >= state_.decide_at; }
  // This rank's measurements, for a maximum over all ranks.
  std::vector<int64_t> measured() const;
  // Chooses from the largest of each, at `step`. If the choice has changed, returns it in words.
  std::optional<std::string> decide(uint64_t step, std::span<const int64_t> measured);

  // Checkpoint interval in steps; 0: only the last step.
  uint64_t every() const;
  // The longest interval of the run, past or future, in steps; 0: only the last step.
  uint64_t widest() const {
    if (options_.auto_every) return state_.widest;
    return options_.every == 0 ? 0 : options_.every + options_.turns;
  }
  // Experts of each layer in the next checkpoint; nothing: decided elsewhere.
  std::optional<uint32_t> k() const;
  // Experts of each layer that a snapshot copies; nothing: decided elsewhere, or not measured
  // yet.
  std::optional<uint32_t> k_snapshot() const;
  // Reason of the settings; for fixed ones, that they were requested.
  const std::string& reason() const { return reason_; }
  PaceState state() const;

 private:
  void derive_choices();
  MeasuredCosts costs() const;
  AutoRequest request() const;
  uint64_t full_bytes() const {
    return options_.dense_bytes + options_.expert_bytes * options_.experts;
  }
  // Samples of one measurement. The median keeps one slow step from looking like a slow machine.
  class Median {
   public:
    void add(int64_t value);
    bool enough() const;    // enough samples
    int64_t value() const;  // 0 without samples

   private:
    std::deque<int64_t> newest_;
  };

  const PaceOptions options_;
  PaceState state_;
  Median steps_;
  Median stalls_;
  Median durables_;
  int64_t restore_ns_ = 0;
  // The first snapshot of a process touches its arena for the first time: not a valid sample.
  std::optional<uint64_t> first_;
  struct Taken {
    uint64_t bytes = 0;
    uint64_t written_bytes = 0;
  };
  std::map<uint64_t, Taken> taken_;  // recent snapshots, by step
  uint32_t k_snapshot_ = 0;          // hidden experts at the last choice; 0: no choice yet
  uint64_t sustainable_ = 1;         // steps, at the last choice
  std::string reason_;
};

}  // namespace moetrain
