// Scrub: reads what is live back from the disk in the background, and remembers what is damaged.
//
//   new commits   soon after they became durable; they go first
//   a pass        the journal, then every live extent of the store, when it is due or somebody
//                 asks for it
//
// Bytes that a commit shares with an earlier one were read when it was taken, and are read with the
// one that wrote them, as long as that is there; from then on with each that has them.
//
// It reads at a bounded rate, and gives way to others (pace.h). Where it stands is kept in the
// catalog, at most limits::kScrubSaveEvery late, so that a pass goes on after a restart. It changes
// and deletes nothing: damage is counted, logged, and shown until a later pass, or a verify of the
// run, does not find it any more. Bytes that the system refuses to read are no damage: they are
// counted apart. Commits that are deleted meanwhile are passed over, and their damage goes; before
// space is given back step_aside() is asked.
//
// Loop thread. The destructor asserts that it was closed.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/restore/commit_check.h"
#include "ckptd/restore/extent_reader.h"
#include "ckptd/restore/journal_check.h"
#include "ckptd/restore/verify.h"
#include "ckptd/restore/verify_targets.h"
#include "ckptd/scrub/pace.h"

namespace ckptd {

class Scrub {
 public:
  struct Options {
    // 0: nothing is read unless somebody asks for a pass, and says how fast.
    uint64_t bytes_per_second = 0;
    // From the end of a pass to the next one; 0: only when somebody asks.
    std::chrono::milliseconds interval{0};
    std::function<uint64_t()> wall_clock_ns;
    // Do restores or snapshots use the disk?
    std::function<bool()> others_busy;
    JournalSource journal;
    // May an extent be begun? Not while space is given back, nor when all is to end.
    std::function<bool()> may_begin;
  };
  struct Counters {
    uint64_t bytes = 0;
    uint64_t passes = 0;  // that came to their end
    uint64_t errors = 0;  // findings, those of earlier passes again included
  };

  // The catalog is up to date with the journal.
  Scrub(const RestoreContext& context, Catalog& catalog, Options options);
  ~Scrub();
  Scrub(const Scrub&) = delete;
  Scrub& operator=(const Scrub&) = delete;

  void tick(Time now);
  // A commit became durable, and is in the catalog.
  void committed(ckpt::RunId run, ViewPoint point, uint64_t sequence);
  // A verify that began then has ended. Its damage is known from now on, like that of a pass. The
  // damage that it did not find again in `whole_runs`, of which it has read everything, is gone;
  // the empty name stands for the journal.
  void verified(const VerifyReport& report, const std::vector<std::string>& whole_runs,
                uint64_t began_ns);
  // These commits of the run were deleted, or all of it was, and the catalog has that. Damage that
  // no commit needs any more is forgotten; what another commit shares is shown as damage of that
  // one.
  void deleted(const RunInfo& run, const std::set<ViewPoint>& commits);
  // A pass begins at the front, whatever there was of one. 0: at the configured rate. Returns its
  // number. kInvalidArgument: too slow, or background reads are off and no rate is given.
  Result<uint64_t> begin_pass(uint64_t bytes_per_second);
  // True: it reads nothing and has no file open. False: it drops the extent at hand, which it will
  // read again; it is to be asked again after the next poll.
  bool step_aside();
  // Nothing is read any more. on_closed runs from the loop, never within this call.
  void close(std::function<void()> on_closed);

  const ScrubState& state() const { return state_; }
  const Counters& counters() const { return counters_; }
  size_t commits_waiting() const { return new_.size(); }
  bool reading() const { return reader_.busy() || journal_.busy(); }
  bool yielding() const { return reading() && pace_.yields(); }

 private:
  struct NewCommit {
    ViewPoint point;
    ScrubCursor cursor;
  };
  void load_state();
  bool find_new_commits();
  void keep_bound();
  void go_on();
  void read_journal();
  bool load_next();
  bool load(ScrubCursor& cursor, ViewPoint point, bool is_new);
  ScrubCursor& cursor() { return commit_is_new_ ? new_.front().cursor : state_.pass->cursor; }
  bool passes_over(size_t extent);
  bool load_of_pass();
  bool new_is_due() const;
  bool load_new();
  void begin_due_pass();
  void start_pass(uint64_t bytes_per_second);
  void extent_done(const ExtentReader::Outcome& outcome);
  void commit_done();
  void pass_done();
  void drop_extent();
  void found(const std::vector<VerifyError>& errors);
  void found_damage(const VerifyError& error, uint64_t now_ns);
  enum class Kept : uint8_t { kKnown, kNew, kNoRoom };
  Kept keep_damage(const VerifyError& error, uint64_t now_ns);
  void could_not_check(const VerifyError& error);
  // The damage as it is shown from now on; nullopt: no commit of the run needs the bytes.
  std::optional<ScrubDamage> still_needed(ScrubDamage damage, ckpt::RunId run,
                                          const std::vector<ckpt::UnitSpec>& units,
                                          size_t& holders_left) const;
  uint64_t newest_pass() const { return state_.pass ? state_.pass->number : state_.last.number; }
  bool may_read(uint64_t bytes, bool of_pass);
  void save();

  const RestoreContext context_;
  Catalog& catalog_;
  const Options options_;
  Counters counters_;
  ScrubState state_;
  Time now_{};
  std::optional<Time> unsaved_since_;
  std::optional<Time> others_were_busy_;  // last
  std::optional<Time> new_begun_;  // last, with a new commit; until then, since when there is one
  Pace pace_;

  std::deque<NewCommit> new_;                  // in the order of their records
  std::deque<VerifyTargetCommit> of_run_;      // of the pass, from the cursor on, in one run
  std::optional<CommitCheck> commit_;          // at hand
  bool commit_is_new_ = false;                 // the front of new_; else of of_run_
  std::string told_unchecked_;                 // the last reason that was logged for this
  std::map<ckpt::SnapshotKey, bool> writers_;  // of what the one at hand shares: are they there?
  uint64_t pass_until_ = 0;    // the last record there was when the pass began, or went on
  uint64_t pass_covers_ = 0;   // the same, 0 if it was the last daemon that began it
  uint64_t pass_extents_ = 0;  // that are the pass's turn, though new commits wait
  bool stopping_ = false;
  bool loaded_ = false;  // state_ is what the catalog has
  bool closed_ = false;
  std::function<void()> on_closed_;
  ExtentReader reader_;
  JournalCheck journal_;
  bool journal_due_ = false;  // a start has read it: a pass that goes on need not
};

}  // namespace ckptd
