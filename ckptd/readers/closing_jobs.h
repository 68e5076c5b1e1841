// ClosingJobs: jobs that were closed and still have reads in flight. Keeps each until its last read
// is over, because buffers of the job are the target of these reads. Loop thread. The owner of the
// loop runs disk, executor and deferred work until empty(); the destructor asserts it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "ckptd/loop/turn.h"
#include "formats/base/assert.h"

namespace ckptd {

class ClosingJobs {
 public:
  explicit ClosingJobs(Turn& turn) : turn_(turn) {}
  ClosingJobs(const ClosingJobs&) = delete;
  ClosingJobs& operator=(const ClosingJobs&) = delete;
  ~ClosingJobs() { CKPT_ASSERT(jobs_.empty()); }

  // Closes a RestoreJob or VerifyJob. After its last read, at the end of that turn: destroys it and
  // runs `then`, which may be empty.
  template <typename Job>
  void close(std::unique_ptr<Job> job, std::function<void()> then) {
    const uint64_t id = next_++;
    const std::shared_ptr<Job> kept = std::move(job);
    jobs_.emplace(id, kept);
    kept->close([this, id, then = std::move(then)] {
      // The job must not be destroyed inside its own callback.
      turn_.defer([this, id, then] {
        jobs_.erase(id);
        if (then) then();
      });
    });
  }
  bool empty() const { return jobs_.empty(); }

 private:
  Turn& turn_;
  std::map<uint64_t, std::shared_ptr<void>> jobs_;
  uint64_t next_ = 1;
};

}  // namespace ckptd
