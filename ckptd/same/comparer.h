// Comparer: are the bytes of a slab on the disk already, byte for byte?
//
// For fragments of which an earlier version has the same CRC32C (same_plan.h): what the disk has is
// read back, decoded where it is encoded, a delta with its base, and compared with the slab; of
// each extent that it lies in the header is read and checked, too. So a CRC32C is never taken for
// proof; and who refers to those bytes afterwards knows that the disk could still read them, and
// that a restart will find the extent to be what the journal says. A read that fails, or anything
// that differs, only means that the fragment is not there.
//
// Whoever asks sees to it that the bytes are not given back to the disk meanwhile. A bounded number
// of slabs is compared at a time, runs by turns, each with a few reads of bounded size. What would
// take too many reads is not compared, nor what has waited for too long: it is as if it were not
// there. Loop thread; comparing runs on the executor. The destructor asserts that it is idle.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "ckptd/restore/context.h"
#include "ckptd/same/same_plan.h"

namespace ckptd {

using Time = std::chrono::nanoseconds;

class Comparer {
 public:
  struct Options {
    uint64_t bytes_min = 0;  // what a read is worth its while for
    // A slab that was abandoned while it was being read is not read any more.
    std::function<void()> on_abandoned = {};
  };
  // The slab back, and for each of its fragments whether it is there.
  using Done = std::function<void(StagedSlab, std::vector<bool>)>;

  Comparer(const RestoreContext& context, Options options);
  ~Comparer();
  Comparer(const Comparer&) = delete;
  Comparer& operator=(const Comparer&) = delete;

  // `extents`: each that a place of a candidate lies in, once. on_done runs from the loop, never
  // within this call.
  void compare(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
               std::vector<SameCandidate> candidates, std::vector<SameExtent> extents,
               Done on_done);
  void tick(Time now);
  // No on_done of this snapshot runs any more; its slabs are freed as soon as nobody reads them.
  void abandon(const ckpt::SnapshotKey& snapshot);
  void abandon_all();
  bool idle() const { return waiting_.empty() && running_.empty(); }
  uint64_t read_bytes() const { return read_bytes_; }  // since the start

 private:
  struct Job;
  struct Slot;
  using JobPointer = std::shared_ptr<Job>;
  JobPointer next_waiting();
  void start_jobs();
  void go_on(const JobPointer& job);
  void read(const JobPointer& job, Slot& slot, const Result<SegmentHandle>& file);
  void compare_read(const JobPointer& job, Slot& slot, const Result<uint64_t>& got);
  void finish(const JobPointer& job);
  void from_loop(const JobPointer& job, void (Comparer::*then)(const JobPointer&));

  const RestoreContext context_;
  const Options options_;
  std::map<ckpt::RunId, std::deque<JobPointer>> waiting_;  // none is empty
  ckpt::RunId last_run_ = 0;                               // whose turn was last
  std::vector<JobPointer> running_;
  Time now_{};
  Time last_read_{};  // came back
  uint64_t read_bytes_ = 0;
};

}  // namespace ckptd
