// Space: returns dead space to the disk, in rounds, beside all other work.
//
// Extents of failed snapshots are dead at once, because no commit names them. Extents of deletions
// are dead after the tombstone is durable and in the catalog, and after every restore and verify
// that may still read them has ended. A round that is interrupted, even by a crash, is repeated:
// the reclaim is recorded last.
//
// Owns what is dead and not reclaimed yet, the current round, and the clients that wait for `gc`.
// Loop thread. The owner reaps the disk until busy() is false before destruction.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ckptd/gc/dead_records.h"
#include "ckptd/gc/gc.h"
#include "ckptd/history/history.h"
#include "ckptd/loop/turn.h"
#include "ckptd/sessions/replies.h"

namespace ckptd {

class Space {
 public:
  struct Needs {
    Executor& executor;
    History& history;
    Turn& turn;
    const Replies& replies;
    std::function<bool()> is_draining;
    // Jobs that read are numbered in the order of their start.
    std::function<uint64_t()> next_reader;
    std::function<uint64_t()> oldest_reader;
    // True if an uncommitted snapshot has bytes there, or the next one will write there.
    std::function<bool(ckpt::SegmentId)> being_written;
    // Stops background reads before a round. False: some are in flight, and the round must wait.
    std::function<bool()> stop_background_reads;
  };
  struct Counters {
    uint64_t freed_bytes = 0;
    uint64_t segments_removed = 0;
    uint64_t errors = 0;
  };
  explicit Space(Needs needs) : needs_(std::move(needs)) {}
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  // Rounds may start from now on.
  void open(Disk& disk, SegmentReader& segments);

  // A record that is about to be applied may make space dead.
  void on_record(const ckpt::fb::RecordT& record);
  // Bytes of a segment that no commit names or will name.
  void add_unlisted(const SpaceRange& range) { unlisted_.push_back(range); }
  // Starts a round at the end of this turn.
  void want_round() { wanted_ = true; }
  // A restore or verify has ended: records that waited for it may be ready.
  void reader_gone() {
    if (dead_records_.waiting() > 0) wanted_ = true;
  }
  // Reads that may have kept a dead file open are over.
  void files_closed() {
    if (!dead_files_.empty()) wanted_ = true;
  }

  // End of a turn: starts a round if one is wanted and possible.
  void collect();
  // End of a turn: answers `gc` requests when nothing is left to do, or nothing can be done now.
  void answer_askers();
  // Request `gc` of a client.
  void query(const Session& session, uint64_t request);

  // True while a round is wanted and can start, or runs: background reads must not begin.
  bool wants_disk() const {
    return (wanted_ && needs_.history.journal().health().ok()) || running_;
  }
  bool busy() const { return gc_ != nullptr && gc_->busy(); }
  const Counters& counters() const { return counters_; }

 private:
  // Space that can be reclaimed now.
  struct Round {
    std::vector<GcTask> tasks;
    std::set<ckpt::SegmentId> removable;
    bool more = false;
  };
  // A client that requested gc, and the reclaimed bytes at that time.
  struct Asker {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
    uint64_t freed_bytes = 0;
    uint64_t segments_removed = 0;
  };
  Round plan_round();
  void freed(const GcOutcome& outcome);
  void record_freed(const GcOutcome& outcome);
  void round_over();
  QueryAnswer answer_to(const Asker& asker, const Status& health) const;

  const Needs needs_;
  std::unique_ptr<Gc> gc_;
  bool wanted_ = true;    // leftovers of the last daemon
  bool running_ = false;  // until the reclaim is recorded
  std::string error_;     // of the last round
  DeadRecords dead_records_;
  std::set<ckpt::SegmentId> dead_files_;  // to be removed once nobody writes to them
  std::vector<SpaceRange> unlisted_;
  std::vector<Asker> askers_;
  Counters counters_;
};

}  // namespace ckptd
