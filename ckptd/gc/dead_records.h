// DeadRecords: dead space that journal records created and gc has not reclaimed yet, in the order
// of gc rounds.
//
// The catalog has all of the dead space. This class tracks which records were seen, and which jobs
// may still read their space. A job that began before a record was seen may read its space; a later
// job cannot know it. Each record is read twice, once when seen and once for its round, so the cost
// is linear in the backlog.
//
// Pure except for reads of the catalog. If the catalog's health() reports incomplete reads, call
// forget(). Loop thread.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/gc/gc.h"

namespace ckptd {

class DeadRecords {
 public:
  // The catalog may have new records.
  void rescan() {
    unseen_ = true;
    at_run_ = 0;
  }
  // Continues reading, at most `records_max` records. `next_reader`: number of the job that begins
  // next; numbers ascend. True once all records are seen; only then may a round be taken.
  bool see(const Catalog& catalog, uint64_t next_reader, size_t records_max);

  struct Round {
    std::vector<GcTask> tasks;
    // Segments that may have nothing live any more, and that no job reads.
    std::set<ckpt::SegmentId> candidates;
  };
  // Records that no job from before `oldest_reader` can read, oldest first; each once.
  Round take(const Catalog& catalog, uint64_t oldest_reader, size_t tasks_max);
  bool more() const { return !ready_.empty(); }
  size_t waiting() const { return waiting_.size(); }  // records that wait for jobs to end
  bool is_read(ckpt::SegmentId segment) const { return reads_.contains(segment); }

  // The record's space is recorded as reclaimed.
  void freed(uint64_t sequence) { barriers_.erase(sequence); }
  // A round failed, or reads were incomplete: all records are seen anew. Keeps the barriers of the
  // jobs that may still read them.
  void forget();

 private:
  struct Record {
    ckpt::RunId run = 0;
    uint64_t sequence = 0;
    std::set<ckpt::SegmentId> segments;
  };
  void add(ckpt::RunId run, const DeadSpace& dead, uint64_t next_reader);
  void make_ready(Record record);

  bool unseen_ = true;
  ckpt::RunId at_run_ = 0;                   // next run of the pass over runs
  std::map<ckpt::RunId, uint64_t> seen_;     // up to this record
  std::map<uint64_t, uint64_t> barriers_;    // record -> the first job that cannot read it
  std::multimap<uint64_t, Record> waiting_;  // by barrier
  std::map<ckpt::SegmentId, size_t> reads_;  // segments of waiting records, with their number
  std::deque<std::pair<ckpt::RunId, uint64_t>> ready_;
  std::set<ckpt::SegmentId> candidates_;  // of records that became ready since the last round
};

}  // namespace ckptd
