// Gc: returns dead space to the disk.
//
//   segment without live data  -> its file is removed, the directory synced
//   any other segment          -> its dead stretches are punched out, the file synced
//
// Preconditions, guaranteed by the caller: the space is dead and recorded as dead, no job reads it,
// and nothing writes to a segment that is to be removed. A round that is interrupted at any point,
// even by a crash, is simply repeated. No bytes are moved.
//
// Loop thread. Rounds do not overlap; the destructor asserts that none is running.
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

// Dead space of one journal record.
struct GcTask {
  ckpt::RunId run = 0;
  DeadSpace dead;
};

struct GcOutcome {
  // Run and sequence of tasks whose space was reclaimed completely and durably.
  std::vector<std::pair<ckpt::RunId, uint64_t>> freed;
  uint64_t bytes = 0;
  uint64_t segments_removed = 0;
  std::set<ckpt::SegmentId> still_read;  // were to be removed, but are open: punched instead
  std::optional<ckpt::Error> failed;     // the first error; other segments were still processed
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
  // The current segment: its file, the ranges that are not submitted yet, and those in flight.
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
