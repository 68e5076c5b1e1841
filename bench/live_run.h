// A run of moetrain that is watched while it goes on, so that something can be done to its ranks at
// chosen moments.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/scratch.h"
#include "bench/step_run.h"
#include "formats/base/unique_fd.h"

namespace bench {

class LiveRun {
 public:
  // Starts it. Its folder, store included, goes with this object; a run that has not ended then is
  // killed, which takes its ranks and its ckptd along. Its steps are those of the window, to the
  // last one. `seconds_max`: until its end; waits take no longer.
  static ckpt::Result<std::unique_ptr<LiveRun>> start(const StepWorkload& workload,
                                                      const std::vector<std::string>& flags,
                                                      uint64_t seconds_max = 90);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  // Reads on until something was read, or until then (moetrain::monotonic_ns). False: the run has
  // ended, and all that it said has been read.
  bool read_until(uint64_t end_ns);
  // Of all ranks, as they came in.
  const std::vector<moetrain::RankEvent>& events() const { return events_; }
  // Reads until this step was completed by some rank, in which case the time is that of the first.
  // kFailedPrecondition if the run ends before, kDeadlineExceeded after seconds_max.
  ckpt::Result<uint64_t> await_step(uint64_t step);

  // Signals the processes of these ranks, one right after the other; the time before the first.
  // kFailedPrecondition if one of them has not been heard of.
  ckpt::Result<uint64_t> signal_ranks(const std::vector<uint32_t>& ranks, int number) const;
  // SIGTERM: the run saves the step that it is at, and ends with 143.
  void stop() const;
  // Reads to the end, which must be this exit code: kFailedPrecondition with what the run said
  // otherwise, kDeadlineExceeded after seconds_max since the start.
  ckpt::Status finish(int exit_code = 0);

 private:
  LiveRun(ScratchDirectory folder, uint64_t seconds_max)
      : seconds_max_(seconds_max), folder_(std::move(folder)) {}
  ckpt::Error too_late(const std::string& waited_for) const;

  const uint64_t seconds_max_;
  ScratchDirectory folder_;
  ckpt::base::UniqueFd fifo_;
  std::optional<moetrain::Process> process_;
  std::optional<moetrain::ProcessEnd> end_;
  uint64_t deadline_ns_ = 0;
  moetrain::EventReader reader_;
  std::vector<moetrain::RankEvent> events_;
};

}  // namespace bench
