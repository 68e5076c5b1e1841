// Pacer: when the next checkpoint is due and how many experts it takes, as a run goes on.
//
// With fixed numbers it says what was asked for. With `auto` it collects what its own rank
// measures; at steps that all ranks know beforehand they agree on the largest of each measure, and
// all make the same choice from that (auto_config.h). So what was measured in wall time decides
// nothing before it is agreed. It is also saved with every checkpoint: a run that is resumed goes
// on with the numbers that were in force, and agrees anew from there.
//
// Failures are the exception to what a resume rewinds: those who survived remember them, those who
// were started anew are told, and the largest count is agreed on when an epoch begins. Time is that
// of training, as the steps took it: between the end of a run and its resume there is none.
//
// Where survivors go on, all members take over what one of them has agreed on: a choice that one
// rank has heard of, and another has not, is in force on all of them or on none. A loss counts as a
// failure only if it took the last copy of an expert. What replicas make good would have cost no
// less with any other interval.
//
// A rollback loses what came since the last checkpoint, whatever K is. One after which more is lost
// than the budget allows, though all experts are written, halves the interval, chosen or asked for.
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
  uint32_t k_snapshot = 0;  // so many of each layer; 0: as many as hide
  uint64_t every = 0;       // steps, if not auto; 0: only the last step
  uint64_t turns = 0;  // if not auto: none in so many steps, then in as many, in turns; 0: no turns
  uint32_t k = 0;      // experts of each layer, if not auto; 0: all
  uint32_t k_least = 1;  // if auto: fewer would not visit all experts in time
  uint32_t experts = 1;
  uint64_t dense_bytes = 0;   // of every checkpoint
  uint64_t expert_bytes = 0;  // of one expert in each layer
  AutoLimits limits;

  // Is anything to be chosen? Without regular checkpoints there is not.
  bool any() const { return auto_every || ((auto_experts || auto_memory()) && every != 0); }
  bool auto_memory() const { return memory && k_snapshot == 0; }
};

// What a checkpoint keeps.
struct PaceState {
  uint64_t every = 0;      // in force; 0: nothing was chosen yet
  uint64_t widest = 0;     // the largest that was ever in force
  uint32_t k = 0;          // in force; 0: nothing was chosen yet
  uint32_t k_min = 0;      // dynamic K has come to this
  uint64_t taken = 0;      // step of the newest snapshot that was asked for
  uint64_t decide_at = 0;  // step
  // Agreed last: of a step, and of a snapshot with all experts. 0: not measured yet.
  int64_t step_ns = 0;
  int64_t stall_ns = 0;
  int64_t durable_ns = 0;
  int64_t restore_ns = 0;
  uint64_t failures = 0;
  int64_t seen_ns = 0;  // of training
  bool ended = false;   // the last checkpoint of a run that came to its end or was stopped
  uint32_t halved = 0;  // times: rollbacks have lost more than the budget allows
  bool operator==(const PaceState&) const = default;
};
// kInvalidArgument if no run of such a model can have saved this: what a hostile checkpoint says.
Status check_pace(const PaceState& state, uint32_t experts);

class Pacer {
 public:
  // How this process has come to an epoch that resumes.
  enum class Came : uint8_t {
    kSurvived,   // it trained in the epoch before
    kRestarted,  // the supervisor started it in place of one that died
    kResumed,    // `--resume latest`: a failure, unless the run had ended
    kChosen,     // `--resume STEP`: somebody wants to go back
  };

  explicit Pacer(const PaceOptions& options);

  // A run begins; `again`: it failed before it had saved anything, which this process has seen.
  void start(bool again = false);
  // A run goes on from a view at `step`. `known`: what the supervisor has heard of failures.
  void resume(const PaceState& saved, Came came, const FailureRecord& known, uint64_t step);
  // What this rank believes after resume(), and what all agree on: the largest of each.
  std::vector<int64_t> believed() const;
  void agree(std::span<const int64_t> believed);
  // A group goes on at `step` with other members, who all take over what one of them had. What was
  // measured among the others is no measure any more: what was agreed counts until enough is.
  // kCorrupt if no run of such a model has such a pace; nothing changed then.
  Status take_over(const PaceState& handed, uint64_t step);
  // In that change experts had to come back from checkpoints; it cost this until training went on.
  void rolled_back(double ms);
  // Dynamic K took over: not fewer than k from now on.
  void raise_k(uint32_t k);
  // A rollback has lost more than the budget allows, and all experts are written already: half the
  // interval, but not less than storage sustains, as far as that is measured. False: it is the
  // least.
  bool overspent();
  // What is lost is within the budget again: the whole interval.
  void within_budget() { state_.halved = 0; }
  bool is_halved() const { return state_.halved != 0; }

  // Is a checkpoint due after `step`?
  bool due(uint64_t step) const;
  // A snapshot of `step` is asked for, with so many bytes of all ranks, so many of them written.
  void taking(uint64_t step, uint64_t bytes, uint64_t written_bytes);
  // It is durable. What is not known of any more is passed over.
  void durable(uint64_t step, double ms);
  // A step was done. `ms` without the stall; `snapshot` if a snapshot of the step before caused the
  // stall, rather than nothing.
  void stepped(double ms, double stall_ms, bool snapshot);
  // A failure cost this until training went on.
  void recovered(double ms) { restore_ns_ = static_cast<int64_t>(ms * 1e6); }

  // Do the ranks agree anew at this step, before anything else happens in it?
  bool decides_at(uint64_t step) const { return options_.any() && step >= state_.decide_at; }
  // For a maximum over all ranks.
  std::vector<int64_t> measured() const;
  // From the largest of each, at `step`: if the choice has changed, it and its reason in words.
  std::optional<std::string> decide(uint64_t step, std::span<const int64_t> measured);

  // Steps from one checkpoint to the next; 0: only the last.
  uint64_t every() const;
  // The most steps from one checkpoint to the next that there were or will be; 0: only the last.
  uint64_t widest() const {
    if (options_.auto_every) return state_.widest;
    return options_.every == 0 ? 0 : options_.every + options_.turns;
  }
  // Experts of each layer in the next checkpoint; nothing: not for it to say.
  std::optional<uint32_t> k() const;
  // Experts of each layer that a snapshot copies; nothing: not for it to say, or nothing is
  // measured.
  std::optional<uint32_t> k_snapshot() const;
  // Why it is so: of fixed numbers, that they were asked for.
  const std::string& reason() const { return reason_; }
  PaceState state() const;

 private:
  void choose_what_follows();
  MeasuredCosts costs() const;
  AutoRequest request() const;
  uint64_t full_bytes() const {
    return options_.dense_bytes + options_.expert_bytes * options_.experts;
  }
  // Samples of one measure; their median, so that one slow step is not taken for a slow machine.
  class Median {
   public:
    void add(int64_t value);
    bool enough() const;    // samples to believe
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
  // The first snapshot of a process touches its arena for the first time, and is no measure.
  std::optional<uint64_t> first_;
  struct Taken {
    uint64_t bytes = 0;
    uint64_t written_bytes = 0;
  };
  std::map<uint64_t, Taken> taken_;  // recent snapshots, by step
  uint32_t k_snapshot_ = 0;          // what hides, as of the last choice; 0: none was made
  uint64_t sustainable_ = 1;         // steps, as of the last choice
  std::string reason_;
};

}  // namespace moetrain
