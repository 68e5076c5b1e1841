// DeadRecords: what journal records made dead and nobody has given back yet, in the order in which
// rounds of gc take it.
//
// The catalog has it all. Here is which of it was seen, and who may still read it: a job that began
// before a record was seen here may read what that made dead; one that began later cannot have been
// told of it. Each record is read twice, once to be seen and once for its round, however many there
// are; so what a backlog costs grows with it, and no faster.
//
// Pure but for reading the catalog, whose health says whether what was read is whole: if it is not,
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
  // There may be new ones in the catalog.
  void look_again() {
    unseen_ = true;
    at_run_ = 0;
  }
  // Reads on where it stopped, at most so many. `next_reader`: the number of the job that begins
  // next; they ascend. True once everything is seen, and only then may a round be taken.
  bool see(const Catalog& catalog, uint64_t next_reader, size_t records_max);

  struct Round {
    std::vector<GcTask> tasks;
    // Segments in which nothing may be live any more, and that no job reads by what it was told.
    std::set<ckpt::SegmentId> candidates;
  };
  // What nobody from before `oldest_reader` on can read, oldest first; each once.
  Round take(const Catalog& catalog, uint64_t oldest_reader, size_t tasks_max);
  bool more() const { return !ready_.empty(); }
  size_t waiting() const { return waiting_.size(); }  // for jobs to be over
  bool is_read(ckpt::SegmentId segment) const { return reads_.contains(segment); }

  // It is on record as given back.
  void freed(uint64_t sequence) { barriers_.erase(sequence); }
  // What was taken was not given back, or what was read is in doubt: all is seen anew. Who may
  // still read it is remembered.
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
  ckpt::RunId at_run_ = 0;                   // the pass over runs goes on here
  std::map<ckpt::RunId, uint64_t> seen_;     // up to this record
  std::map<uint64_t, uint64_t> barriers_;    // record -> the first job that cannot read it
  std::multimap<uint64_t, Record> waiting_;  // by barrier
  std::map<ckpt::SegmentId, size_t> reads_;  // segments of those, and of how many
  std::deque<std::pair<ckpt::RunId, uint64_t>> ready_;
  std::set<ckpt::SegmentId> candidates_;  // of those that have become ready since the last round
};

}  // namespace ckptd
