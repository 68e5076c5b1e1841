// Comparer: checks whether the bytes of a slab are already on disk, byte for byte.
//
// For fragments with the CRC32C of an earlier version (dedup_plan.h). The bytes on disk are read
// back, decoded if encoded, a delta with its base, and compared with the slab. The header of each
// of their extents is checked, too. So a CRC32C is never taken as proof. A snapshot that then
// references the bytes knows that the disk can read them, and that a restart will find the extent
// as the journal describes it. A failed read or any difference only means that the fragment is not
// there.
//
// The caller ensures that the bytes are not reclaimed meanwhile. A bounded number of slabs is
// compared at a time, runs in turn, each with a few reads of bounded size. Fragments that need too
// many reads, or wait too long, are not compared, and count as not there. Loop thread; comparing
// runs on the executor. The destructor asserts that it is idle.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "ckptd/dedup/dedup_plan.h"
#include "ckptd/restore/context.h"

namespace ckptd {

using Time = std::chrono::nanoseconds;

class Comparer {
 public:
  struct Options {
    uint64_t bytes_min = 0;  // minimum size that makes a read worthwhile
    // The reads of an abandoned slab have ended.
    std::function<void()> on_abandoned = {};
  };
  // Returns the slab, and for each of its fragments whether it is on disk.
  using Done = std::function<void(StagedSlab, std::vector<bool>)>;

  Comparer(const RestoreContext& context, Options options);
  ~Comparer();
  Comparer(const Comparer&) = delete;
  Comparer& operator=(const Comparer&) = delete;

  // `extents`: every extent of a candidate's place, once. on_done runs from the loop, never within
  // this call.
  void compare(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
               std::vector<DedupCandidate> candidates, std::vector<DedupExtent> extents,
               Done on_done);
  void tick(Time now);
  // No further on_done of this snapshot runs; its slabs are freed once their reads have ended.
  void abandon(const ckpt::SnapshotKey& snapshot);
  void abandon_all();
  bool idle() const { return waiting_.empty() && running_.empty(); }
  uint64_t read_bytes() const { return read_bytes_; }  // since startup

 private:
  struct Job;
  struct Slot;
  using JobPointer = std::shared_ptr<Job>;
  JobPointer next_waiting();
  void start_jobs();
  void continue_job(const JobPointer& job);
  void read(const JobPointer& job, Slot& slot, const Result<SegmentHandle>& file);
  void compare_read(const JobPointer& job, Slot& slot, const Result<uint64_t>& got);
  void finish(const JobPointer& job);
  void from_loop(const JobPointer& job, void (Comparer::*then)(const JobPointer&));

  const RestoreContext context_;
  const Options options_;
  std::map<ckpt::RunId, std::deque<JobPointer>> waiting_;  // none is empty
  ckpt::RunId last_run_ = 0;                               // the run that was last served
  std::vector<JobPointer> running_;
  Time now_{};
  Time last_read_{};  // last completed read
  uint64_t read_bytes_ = 0;
};

}  // namespace ckptd
