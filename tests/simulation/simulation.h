// Simulation: random histories of a job and its daemon, all from one seed.
//
// Ranks join, take snapshots, die and are replaced; the daemon is killed, loses power, is drained;
// the disk fails; virtual time only. The oracle knows what was announced: every snapshot a member
// was told is durable must be listed and restore bit for bit after every restart, nothing else than
// whole snapshots is ever listed, and nothing gets stuck.
//
// With `full` the disk runs full, by snapshots or by others, and has room again later; writes of
// any file find no space, or are short. What is refused then harms nothing else, and once there is
// room the next snapshot succeeds, without a restart of anything.
//
// With `bad_starts` the disk fails while the daemon starts, or the daemon dies in the middle of its
// recovery, by a kill or with the power, several times in a row. A start may be refused then, if it
// says what of; the next one on a sound disk has everything.
//
// With `partial` a snapshot holds some units only. The oracle then works out, from the commits that
// are listed and the resume points it was told, which version of each unit a view has and how many
// tokens each expert has lost; `show` must say exactly that, and the bytes must be those.
//
// With `prune` somebody prunes at times, by random rules. Whatever happens meanwhile, a commit goes
// only if a dry run had said so, and the views of all others stay what they were, bit for bit.
//
// With `unchanged` units stay the same for a few steps, or become others with the same CRC32C. What
// is not written again must be there as long as a view has it, bit for bit.
//
// With `deltas` little of a unit changes from one step to the next, and the daemon is started with
// another codec each time, most often with deltas.
//
// With `scrub` the daemon reads back new commits now and then, whatever else goes on.
//
// With `silent_faults` writes of segments are lost, torn, flipped or end up elsewhere, and the disk
// says that all is well. Then `verify` must name the commits that are spoiled and no others, and no
// restore may take wrong bytes for right ones. disk_truth.h knows which are spoiled.
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
    bool disk_faults = false;    // writes and syncs that fail and say so
    bool partial = false;        // snapshots of some of the units
    bool prune = false;          // commits are removed by random rules
    bool silent_faults = false;  // the disk lies; snapshots are whole, and nobody prunes
    bool unchanged = false;      // units stay what they were, or seem to by their CRC32C
    bool deltas = false;         // little of them changes, and that is what is written
    bool scrub = false;          // new commits are read back in the background
    bool full = false;           // the disk has no room at times
    bool bad_starts = false;     // recovery is disturbed, too
  };
  explicit Simulation(const Options& options);
  void play();
  // Commits that were announced durable, over the whole history.
  size_t announced() const { return announced_.size(); }
  size_t pruned() const { return known_.size() - listed_.size(); }
  // Times that a daemon had read back something by then.
  size_t scrubs() const { return scrubs_; }
  // What a full disk refused, and starts that came to nothing.
  size_t refused() const { return refused_; }
  size_t bad_starts() const { return bad_starts_; }

 private:
  // A snapshot as the trainers made it: its salt says which of several attempts at a step it is.
  struct Known {
    uint64_t salt = 0;
    bool announced = false;
  };
  using Point = std::pair<ckpt::LineageId, ckpt::Step>;

  static inline const FakeTrainer::Options kTrains = {.arena_bytes = 512u << 10,
                                                      .slab_bytes = 64u << 10};
  // Somebody who asks and needs no arena.
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
  // True: up. False: refused, or dead again; then `power` may have become true.
  bool start_badly(bool* power);
  bool die_while_starting(bool* power);
  void break_the_disk();
  void fill_the_disk();
  void make_room();
  // All of it, by everybody; it must become durable.
  void save_whole();
  void prune();
  void let_it_scrub();
  // Takes the members' news into account.
  void listen();
  // The trainers' side of an ended epoch: everybody joins the next.
  bool group_whole() const;
  void check();
  void check_restore(const Point& point);
  void check_view(const Point& point);
  void check_spoiled(const Point& point);
  void check_verify();
  void check_bytes(ckpt::UnitId unit, const Point& version, const std::vector<std::byte>& bytes);
  // What the log lists now.
  void list_commits();

  // Tokens routed to the expert of a unit by a step: the same in every line of history with it.
  static uint64_t tokens_by(ckpt::UnitId unit, ckpt::Step step);
  // What a unit's bytes are made of: the same for snapshots in which they are the same.
  struct Content {
    ckpt::Step step = 0;
    uint64_t salt = 0;
    bool collides = false;  // with that which does not
    auto operator<=>(const Content&) const = default;
  };
  Content content_of(ckpt::UnitId unit, ckpt::Step step, uint64_t salt) const;
  std::byte byte_of(ckpt::UnitId unit, const Content& content, uint64_t offset) const;
  bool same_bytes(ckpt::UnitId unit, const Content& content,
                  const std::vector<std::byte>& bytes) const;
  std::set<Point> spoiled_points();  // none where the disk does not lie

  // -- the oracle of partial histories
  std::vector<ckpt::UnitId> units_at(const Point& point) const;
  // The version of the unit that the view at the point has.
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
  std::string last_refusal_;
  // By lineage and step: all that were begun. The commit's own salt is found by reading it.
  std::map<Point, std::vector<Known>> begun_;
  std::set<Point> announced_;
  std::set<Point> listed_;
  std::set<Point> known_;                   // that were listed once
  std::set<Point> may_be_gone_;             // a prune was told to remove them
  std::map<ckpt::LineageId, Point> forks_;  // which commit each lineage goes on from
};

}  // namespace ckptd::testing
