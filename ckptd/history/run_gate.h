// RunGate: mutual exclusion between changes of a run's history.
//
// Each change spans several turns of the loop: it decides by the catalog, appends records, and ends
// when they are applied. Meanwhile another change must not decide by the same state. A change holds
// a token from its decision to its end. Activities without a duration only ask may().
//
//   x: the activity of the row must not begin while that of the column runs, for the same run
//
//                          administer  delete  remove  replace  register  write
//                                      commits run     run      units     epoch
//   administer                 x         .       .       .         .        .
//   delete commits             .         x       x       x         .        x
//   remove the run             .         x       x       x         x        x
//   replace the run            .         x       x       x         x        x
//   register units             .         .       x       x         .        .
//   write an epoch             .         x       x       x         .        x
//   hold a view                .         x       x       x         .        .
//   reference a version        .         x       x       x         .        .
//   record an epoch's end      .         .       x       x         .        .
//
// Deletions that are on their way to the journal are not in the catalog yet. A hold or a reference
// would be too late for them, and an epoch could resume from a commit that is about to go. No
// record of a removed run may follow its removal. Administration is for the whole store: one change
// that a user requested at a time. Only the administration in progress deletes, removes and
// replaces.
//
// An excluded activity is refused, or it waits: wait() names a callback that runs once the activity
// may begin. A callback that finds it excluded again waits again.
//
// Loop thread only. Tokens are held in memory only: recovery starts without any. The gate must
// outlive its tokens; its destructor asserts that none is held.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "formats/base/ids.h"

namespace ckptd {

enum class RunActivity : uint8_t {
  // These last for some turns, under a token.
  kAdminister,  // of all runs: kAllRuns
  kDelete,      // some commits of the run
  kRemove,      // the run with its commits
  kReplace,     // the run, by another one of its name
  kRegister,    // first registration of the run's units
  kWriteEpoch,  // from the choice of its resume point
  // These are over at once: may() only.
  kHold,       // a reader begins to hold a view
  kReference,  // a snapshot begins to reference a version (dedup, deltas)
  kEndEpoch,   // the end of an epoch is recorded
};
constexpr size_t kRunActivities = 9;
constexpr ckpt::RunId kAllRuns = 0;  // no run has this number

class RunGate {
 public:
  // An activity in progress. Its end, by release() or destruction, wakes those that wait for it.
  class Token {
   public:
    Token(Token&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)),
          activity_(other.activity_),
          run_(other.run_) {}
    Token& operator=(Token&& other) noexcept;
    ~Token() { release(); }
    void release();

   private:
    friend class RunGate;
    Token(RunGate& gate, RunActivity activity, ckpt::RunId run)
        : gate_(&gate), activity_(activity), run_(run) {}

    RunGate* gate_;
    RunActivity activity_;
    ckpt::RunId run_;
  };

  RunGate() = default;
  ~RunGate();
  RunGate(const RunGate&) = delete;
  RunGate& operator=(const RunGate&) = delete;

  // True if no activity in progress excludes this one.
  bool may(RunActivity activity, ckpt::RunId run = kAllRuns) const;
  // True if the activity is in progress.
  bool busy(RunActivity activity, ckpt::RunId run = kAllRuns) const {
    return held_.contains({run, activity});
  }
  // Precondition: may().
  [[nodiscard]] Token begin(RunActivity activity, ckpt::RunId run = kAllRuns);
  // Runs `wake` once, inside the release after which the activity may begin. In the order of
  // arrival. A second wait for the same activity of the run changes nothing. Precondition: !may().
  void wait(RunActivity activity, ckpt::RunId run, std::function<void()> wake);
  // Shutdown: drops all that wait. Releases run no callback from now on.
  void close();

 private:
  struct Waiting {
    RunActivity activity;
    ckpt::RunId run;
    std::function<void()> wake;
  };
  void end(RunActivity activity, ckpt::RunId run);

  std::multiset<std::pair<ckpt::RunId, RunActivity>> held_;
  std::vector<Waiting> waiting_;
  bool closed_ = false;
};

// The table above: true if `running` excludes the beginning of `wanted` for the same run.
bool excludes(RunActivity running, RunActivity wanted);

}  // namespace ckptd
