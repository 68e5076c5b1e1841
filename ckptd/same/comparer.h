// Comparer: are the bytes of a slab on the disk already, byte for byte?
//
// For fragments of which an earlier version has the same CRC32C (same_plan.h): what the disk has is
// read back, decoded where it is encoded, and compared with the slab. So a CRC32C is never taken
// for proof; and who refers to those bytes afterwards knows that the disk could still read them. A
// read that fails, or bytes that differ, only mean that the fragment is not there.
//
// Whoever asks sees to it that the bytes are not given back to the disk meanwhile. A bounded number
// of slabs is compared at a time, each with one read of bounded size. Loop thread; comparing runs
// on the executor. The destructor asserts that it is idle.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "ckptd/restore/context.h"
#include "ckptd/same/same_plan.h"

namespace ckptd {

class Comparer {
 public:
  // The slab back, and for each of its fragments whether it is there.
  using Done = std::function<void(StagedSlab, std::vector<bool>)>;

  explicit Comparer(const RestoreContext& context);
  ~Comparer();
  Comparer(const Comparer&) = delete;
  Comparer& operator=(const Comparer&) = delete;

  // on_done runs from the loop, never within this call.
  void compare(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
               std::vector<SameCandidate> candidates, Done on_done);
  // No on_done of this snapshot runs any more; its slabs are freed as soon as nobody reads them.
  void abandon(const ckpt::SnapshotKey& snapshot);
  void abandon_all();
  bool idle() const { return waiting_.empty() && running_.empty(); }
  uint64_t read_bytes() const { return read_bytes_; }  // since the start

 private:
  struct Job;
  using JobPointer = std::shared_ptr<Job>;
  void start_jobs();
  void next_read(const JobPointer& job);
  void read(const JobPointer& job, const Result<SegmentHandle>& file);
  void compare_read(const JobPointer& job, const Result<uint64_t>& got);
  void finish(const JobPointer& job);
  void from_loop(const JobPointer& job, void (Comparer::*then)(const JobPointer&));

  const RestoreContext context_;
  std::deque<JobPointer> waiting_;
  std::vector<JobPointer> running_;
  uint64_t read_bytes_ = 0;
};

}  // namespace ckptd
