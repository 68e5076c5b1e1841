// A run of moetrain whose events are read while it trains, so that a bench can signal its ranks at
// chosen moments.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/common/scratch.h"
#include "bench/common/step_run.h"
#include "formats/base/unique_fd.h"

namespace bench {

class LiveRun {
 public:
  // Starts the run. Its folder, store included, is removed with this object. A run that is still
  // alive then is killed with its ranks and its ckptd. Trains to the last step of the window.
  // `seconds_max`: time limit of the run; no wait below takes longer.
  static ckpt::Result<std::unique_ptr<LiveRun>> start(const StepWorkload& workload,
                                                      const std::vector<std::string>& flags,
                                                      uint64_t seconds_max = 90);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  // Reads until an event arrives, or until this time (moetrain::monotonic_ns). False: the run has
  // ended and all of its events have been read.
  bool read_until(uint64_t end_ns);
  // Events of all ranks, in order of arrival.
  const std::vector<moetrain::RankEvent>& events() const { return events_; }
  // Reads until some rank has completed this step; returns the time of the first rank that did.
  // kFailedPrecondition if the run ends before, kDeadlineExceeded after seconds_max.
  ckpt::Result<uint64_t> await_step(uint64_t step);

  // Signals the processes of these ranks in quick succession; returns the time before the first
  // signal. kFailedPrecondition if a rank has sent no event yet.
  ckpt::Result<uint64_t> signal_ranks(const std::vector<uint32_t>& ranks, int number) const;
  // Sends SIGTERM: the run saves its current step and exits with 143.
  void stop() const;
  // Reads to the end of the run. kFailedPrecondition, with the output of the run, if its exit code
  // is another; kDeadlineExceeded after seconds_max since the start.
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
