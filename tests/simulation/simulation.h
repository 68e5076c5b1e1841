// Simulation: random histories of a job and its daemon, all from one seed.
//
// Ranks join, take snapshots, die and are replaced. The daemon is killed, loses power or is
// drained, and the disk fails. Time is virtual. The oracle knows what was announced: each snapshot
// that a member was told is durable must be listed, and restore bit for bit, after every restart.
// Only whole snapshots are ever listed, and nothing hangs.
//
// With `full` the disk runs full, by snapshots or by others, and has room again later. Writes of
// any file find no space, or are short. A refused snapshot harms nothing else, and once there is
// room the next snapshot succeeds, without a restart of any process.
//
// With `bad_starts` the disk fails while the daemon starts, or the daemon dies during its recovery,
// by a kill or a power loss, several times in a row. Such a start may fail if its error names the
// object. The next start on a sound disk has everything.
//
// With `partial` a snapshot holds some units only. From the listed commits and the resume points
// the oracle computes the version of each unit in a view, and the tokens that each expert has lost.
// `show` must report exactly these, and the bytes must match.
//
// With `prune` commits are pruned at times by random rules. A commit is removed only if a dry run
// has named it, and the views of all other commits stay the same, bit for bit.
//
// With `unchanged` units stay the same for a few steps, or change to bytes with the same CRC32C.
// Shared extents must be there as long as a view has them, bit for bit.
//
// With `deltas` little of a unit changes from one step to the next. The daemon starts with another
// codec each time, most often with deltas.
//
// With `blobs` the ranks declare blobs, other ones with each attempt. A listed commit has exactly
// those of one attempt, bit for bit, and never those of another commit.
//
// With `grows` the run gets further units now and then, whatever becomes of the snapshot that
// brings them. A view has them from the first commit of its path on, and every resume goes on with
// exactly the units of its view.
//
// With `scrub` the daemon reads back new commits now and then, whatever else goes on.
//
// With `silent_faults` writes of segments are lost, torn, flipped or misdirected, and the disk
// reports success. Then `verify` must name exactly the damaged commits, and no restore may return
// wrong bytes. disk_truth.h computes which commits are damaged. A run of which no view is left is
// refused, and never begun anew.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {

class Simulation {
 public:
  struct Options {
    uint64_t seed = 1;
    int events = 60;
    bool disk_faults = false;    // writes and syncs fail with an error
    bool partial = false;        // snapshots of some of the units
    bool prune = false;          // commits are removed by random rules
    bool silent_faults = false;  // the disk reports false success; whole snapshots, no prunes
    bool unchanged = false;      // units keep their bytes, or at least their CRC32C
    bool deltas = false;         // little of a unit changes, and deltas are written
    bool scrub = false;          // new commits are read back in the background
    bool blobs = false;          // snapshots have blobs
    bool grows = false;          // the run gets further units
    bool full = false;           // the disk has no room at times
    bool bad_starts = false;     // recovery fails or is interrupted, too
  };
  explicit Simulation(const Options& options);
  void play();
  // Number of commits that were announced durable, over the whole history.
  size_t announced() const { return announced_.size(); }
  size_t pruned() const { return known_.size() - listed_.size(); }
  // Number of times that a daemon had read back something by then.
  size_t scrubs() const { return scrubs_; }
  // Number of refusals by the full disk, and of starts that failed.
  size_t refused() const { return refused_; }
  size_t bad_starts() const { return bad_starts_; }

 private:
  // A snapshot that was begun. Its salt tells several attempts at a step apart.
  struct Known {
    uint64_t salt = 0;
    bool announced = false;
  };
  using Point = std::pair<ckpt::LineageId, ckpt::Step>;

  static inline const FakeTrainer::Options kTrains = {.arena_bytes = 512u << 10,
                                                      .slab_bytes = 64u << 10};
  // A session that only sends queries needs no arena.
  static inline const FakeTrainer::Options kAsks = {.arena_bytes = 0,
                                                    .kind = fb::SessionKind::Control};

  uint64_t pick(uint64_t count) { return random_() % count; }
  bool chance(int percent) { return pick(100) < static_cast<uint64_t>(percent); }

  void event();
  void form_group();
  void begin_snapshot();
  void begin_ranks(bool all);
  void fill_some();
  void lose_rank();
  void restart_daemon();
  void stop_daemon(uint64_t way);
  Status start_daemon();
  // True: the daemon is up. False: refused, or dead again; sets `power` after a power loss.
  bool start_badly(bool* power);
  bool die_while_starting(bool* power);
  void break_the_disk();
  void fill_the_disk();
  void clear_disk_full();
  // Saves a snapshot with all ranks. It must become durable.
  void save_whole();
  void prune();
  void run_scrub();
  // Processes the messages to all members.
  void listen();
  // True if every rank is in an epoch.
  bool group_complete() const;
  void expect_lost_views(const std::string& errors);
  void check();
  void check_restore(const Point& point);
  void check_view(const Point& point);
  void check_spoiled(const Point& point);
  void check_verify();
  // Blobs of a rank in a snapshot, by its salt.
  static std::vector<ckpt::BlobSpec> blobs_of(uint64_t salt, ckpt::Rank rank);
  // True if the list and the bytes are those of the attempt.
  static bool same_blobs(uint64_t salt, ckpt::Step step, const fb::BlobsListedT& listed,
                         const FakeTrainer::Restored& restored);
  // `spoiled`: the disk has damaged the commit, so that its blobs may be refused.
  void check_blobs(FakeTrainer& reader, const Point& point, bool spoiled);
  void check_bytes(ckpt::UnitId unit, const Point& version, const std::vector<std::byte>& bytes);
  // Reads the log into listed_, and checks it.
  void list_commits();

  // Tokens routed to the expert of a unit up to a step: the same in every lineage.
  static uint64_t tokens_by(ckpt::UnitId unit, ckpt::Step step);
  // Seed of a unit's bytes: equal for snapshots in which the unit has equal bytes.
  struct Content {
    ckpt::Step step = 0;
    uint64_t salt = 0;
    bool collides = false;  // other bytes than with false, but the same CRC32C
    auto operator<=>(const Content&) const = default;
  };
  Content content_of(ckpt::UnitId unit, ckpt::Step step, uint64_t salt) const;
  std::byte byte_of(ckpt::UnitId unit, const Content& content, uint64_t offset) const;
  bool same_bytes(ckpt::UnitId unit, const Content& content,
                  const std::vector<std::byte>& bytes) const;
  std::set<Point> spoiled_points();  // empty without silent_faults

  // -- the oracle of runs that grow
  void start_growing();
  // A growth may ride on the next snapshot. Returns the grown units of the state.
  void grow(const Point& point);
  // The epoch begins with the grown units of its view, and is told those of the run.
  void resume_growth(const fb::EpochStartedT& epoch);
  // Wants for all bytes of the units that have a version in the view.
  fb::OpenRestoreT whole_view(const Point& point) const;

  // -- the oracle of partial histories
  std::vector<ckpt::UnitId> units_at(const Point& point) const;
  // The version of the unit in the view at the point.
  std::optional<Point> version_at(ckpt::UnitId unit, Point point) const;
  bool complete_at(const Point& point) const;

  const Options options_;
  std::mt19937_64 random_;
  World world_;
  Job job_;
  ckpt::Step step_ = 0;
  uint64_t next_salt_ = 1;
  size_t scrubs_ = 0;
  size_t refused_ = 0;
  size_t bad_starts_ = 0;
  bool full_ = false;
  bool lost_ = false;                 // no commit is left to resume from: the history ends
  size_t grown_ = 0;                  // grown units of the trainers' state
  std::map<Point, size_t> grown_at_;  // of the snapshots begun
  std::string last_refusal_;
  // All snapshots begun, by lineage and step. The committed attempt is found by its bytes.
  std::map<Point, std::vector<Known>> begun_;
  std::set<Point> announced_;
  std::set<Point> listed_;
  std::set<Point> known_;                   // listed at least once
  std::set<Point> may_be_gone_;             // a prune was asked to remove them
  std::map<ckpt::LineageId, Point> forks_;  // the commit that each lineage resumed from
};

}  // namespace ckptd::testing
