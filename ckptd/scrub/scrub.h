// Scrub: reads live data back from disk in the background, and records damage.
//
//   new commits   soon after they became durable, or after a restore met damage in them; they go
//                 first
//   a pass        the journal, then every live extent of the store, when it is due or
//                 requested
//
// Bytes that a commit shares with an earlier one were verified when they were shared. They are read
// with the commit that wrote them while that exists, later with each commit that references them.
//
// Reads at a bounded rate, and yields to others (pace.h). The catalog keeps the position, at most
// limits::kScrubSaveEvery late, so that a pass continues after a restart. Scrub changes and deletes
// nothing. Damage is counted, logged, and shown until a later pass, or a verify of the run, does
// not find it any more. Bytes that the system refuses to read are no damage: they are counted
// apart. Commits that are deleted meanwhile are skipped, and their damage is dropped; pause_reads()
// is called before space is reclaimed.
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
    // 0: reads only in requested passes, at the requested rate.
    uint64_t bytes_per_second = 0;
    // From the end of a pass to the next one; 0: only on request.
    std::chrono::milliseconds interval{0};
    std::function<uint64_t()> wall_clock_ns;
    // True if restores or snapshots use the disk.
    std::function<bool()> others_busy;
    JournalSource journal;
    // True if an extent may be started. False during gc and shutdown.
    std::function<bool()> may_begin;
    // Stores the position of the scrub, for the next daemon.
    std::function<Status(const ScrubState&)> save_state;
  };
  struct Counters {
    uint64_t bytes = 0;
    uint64_t passes = 0;  // finished
    uint64_t errors = 0;  // findings, repeated ones of earlier passes included
  };

  // Precondition: the catalog is up to date with the journal.
  Scrub(const RestoreContext& context, const Catalog& catalog, Options options);
  ~Scrub();
  Scrub(const Scrub&) = delete;
  Scrub& operator=(const Scrub&) = delete;

  void tick(Time now);
  // A commit is durable, and in the catalog.
  void committed(ckpt::RunId run, ViewPoint point, uint64_t sequence);
  // A reader met damage in this commit: it is read back like a new one, so that the damage is
  // recorded, unless it is already.
  void doubted(const ckpt::SnapshotKey& commit);
  // A verify that began at `began_ns` has ended. Records its damage like that of a pass. Drops
  // damage that the verify did not find again in `whole_runs`, which it has read completely; the
  // empty name stands for the journal.
  void verified(const VerifyReport& report, const std::vector<std::string>& whole_runs,
                uint64_t began_ns);
  // These commits of the run, or the whole run, were deleted, and the catalog has the deletion.
  // Drops damage in bytes that no commit needs; damage in shared bytes is shown as damage of
  // another commit.
  void deleted(const RunInfo& run, const std::set<ViewPoint>& commits);
  // Starts a pass from the beginning; a running one is dropped. 0: at the configured rate. Returns
  // its number. kInvalidArgument: too slow, or background reads are off and no rate is given.
  Result<uint64_t> begin_pass(uint64_t bytes_per_second);
  // True: reads nothing and has no file open. False: drops the current extent, and will read it
  // again; ask again after the next poll.
  bool pause_reads();
  // Reads nothing more. on_closed runs from the loop, never within this call.
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
  void continue_reading();
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
  bool has_a_line(const VerifyError& error);
  enum class Kept : uint8_t { kKnown, kNew, kNoRoom };
  Kept keep_damage(const VerifyError& error, uint64_t now_ns);
  void record_unchecked(const VerifyError& error);
  // The damage as shown from now on; nullopt: no commit of the run needs the bytes.
  std::optional<ScrubDamage> still_needed(ScrubDamage damage, ckpt::RunId run,
                                          const std::vector<ckpt::UnitSpec>& units,
                                          size_t& holders_left) const;
  uint64_t newest_pass() const { return state_.pass ? state_.pass->number : state_.last.number; }
  bool may_read(uint64_t bytes, bool of_pass);
  void save();

  const RestoreContext context_;
  const Catalog& catalog_;
  const Options options_;
  Counters counters_;
  ScrubState state_;
  Time now_{};
  std::optional<Time> unsaved_since_;
  std::optional<Time> others_busy_at_;  // most recent time
  std::optional<Time> new_begun_;  // last start of a new commit; before the first, when it arrived
  Pace pace_;

  std::deque<NewCommit> new_;                         // in the order of their records
  std::deque<VerifyTargetCommit> of_run_;             // remaining commits of the pass in one run
  std::optional<CommitCheck> commit_;                 // the current one
  bool commit_is_new_ = false;                        // the front of new_; else of of_run_
  std::map<ckpt::SegmentId, uint64_t> damage_lines_;  // in this pass; 0: of no segment
  std::string logged_unchecked_;                      // the last logged reason
  std::map<ckpt::SnapshotKey, bool> writers_;         // writers of shared extents: do they exist?
  uint64_t pass_until_ = 0;    // the last record when the pass began or continued
  uint64_t pass_covers_ = 0;   // the same, 0 if the last daemon began it
  uint64_t pass_extents_ = 0;  // turn of the pass, in extents, even if new commits wait
  bool stopping_ = false;
  bool loaded_ = false;  // state_ was read from the catalog
  bool closed_ = false;
  std::function<void()> on_closed_;
  ExtentReader reader_;
  JournalCheck journal_;
  bool journal_due_ = false;  // a startup reads it: a continued pass need not
};

}  // namespace ckptd
