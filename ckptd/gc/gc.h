// Gc: gives dead space back to the disk.
//
//   segment in which nothing is live  -> its file is removed, the directory synced
//   any other                         -> its dead stretches are punched out, the file synced
//
// Whoever starts a round answers for it that what it names is dead and on record as dead, that
// nobody reads it any more, and that nobody writes to a segment that is to be removed. A round that
// is cut off at any point, by a crash too, is simply done again. No byte is moved.
//
// Loop thread. Rounds do not overlap; the destructor asserts that none is under way.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/restore/segment_reader.h"

namespace ckptd {

// What one journal record made dead.
struct GcTask {
  ckpt::RunId run = 0;
  DeadSpace dead;
};

struct GcOutcome {
  // Run and sequence of the tasks of which everything is given back, durably.
  std::vector<std::pair<ckpt::RunId, uint64_t>> freed;
  uint64_t bytes = 0;
  uint64_t segments_removed = 0;
  std::set<ckpt::SegmentId> still_read;  // to be removed; punched, since somebody has them open
  std::optional<ckpt::Error> failed;     // the first; the other segments were done all the same
};

class Gc {
 public:
  Gc(Disk& disk, Executor& executor, SegmentReader& segments);
  ~Gc();
  Gc(const Gc&) = delete;
  Gc& operator=(const Gc&) = delete;

  // on_done runs from the loop, never within this call.
  void start(std::vector<GcTask> tasks, const std::set<ckpt::SegmentId>& removable,
             std::function<void(GcOutcome)> on_done);
  bool busy() const { return static_cast<bool>(on_done_); }

 private:
  // The segment at hand: its file, the stretches that are not yet submitted, those under way.
  struct Punching {
    ckpt::SegmentId segment = 0;
    SegmentHandle file;
    std::vector<SpaceRange> ranges;
    size_t next = 0;
    size_t in_flight = 0;
    std::optional<ckpt::Error> failed;
  };
  void remove_files(const std::set<ckpt::SegmentId>& removable);
  void next_segment();
  void opened(const Result<SegmentHandle>& handle);
  void punch_more();
  void punched(const SpaceRange& range, const Result<uint64_t>& result);
  void sync();
  void segment_done();
  void fail(ckpt::SegmentId segment, const ckpt::Error& error);
  void finish();

  Disk& disk_;
  Executor& executor_;
  SegmentReader& segments_;
  std::vector<GcTask> tasks_;
  std::map<ckpt::SegmentId, std::vector<SpaceRange>> to_punch_;
  std::set<ckpt::SegmentId> failed_;
  Punching at_;
  GcOutcome outcome_;
  std::function<void(GcOutcome)> on_done_;
};

}  // namespace ckptd
