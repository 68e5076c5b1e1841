// CommThread: collectives beside the rank's own thread, on a communicator of their own.
//
// Jobs run one at a time, first in first out, whatever is ready. Every rank submits the same jobs,
// each at the same point of the first communicator's sequence of collectives. So the second
// communicator has one sequence, too, and no two ranks can wait for each other: a job that a rank
// waits for has been submitted, or will be, by every peer that leaves the same collectives of the
// first communicator.
//
// A failure of either communicator aborts both. So a rank that waits for a job ends its wait like
// one that waits in a collective: with an error, within the communicator's timeout. On the rank
// whose job failed, that error is the job's; its peers see an aborted communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "trainer/comm/comm.h"

namespace moetrain {

// One per rank and epoch. The rank's thread submits and waits; abort() may come from any thread.
// The thread runs on the CPUs of the thread that makes it: with --pin on the rank's own CPU.
// The destructor joins the thread, after aborting the communicator if jobs have not ended.
class CommThread {
 private:
  struct State;

 public:
  using Work = std::function<Status(Comm&)>;

  static constexpr const char* kName = "moe comm";  // of the thread, in top -H and debuggers

  // A submitted job. Stays valid when the thread is gone: then the job has ended.
  class Job {
   public:
    // Waits until the work has run, or was dropped after a failure: from then on nothing uses what
    // it refers to. The error is the first failure of the thread.
    Status settle() const;

   private:
    friend class CommThread;
    Job(std::shared_ptr<State> state, uint64_t number)
        : state_(std::move(state)), number_(number) {}
    std::shared_ptr<State> state_;
    uint64_t number_;
  };

  // Takes over `comm`. A job that fails aborts `first`, which outlives the thread.
  CommThread(std::unique_ptr<Comm> comm, Comm& first);
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  // Objects that `work` refers to must live until the job has ended.
  Job submit(Work work);
  // Job::settle(), whose time counts as waited.
  Status wait(const Job& job);
  // Total time in wait(), including the time in which the job itself computed (packing, sums).
  int64_t waited_ns() const { return waited_ns_; }
  // The job that runs fails with this reason, and so does every later one.
  void abort(const std::string& reason);
  // The error of the first job that failed; none: no job has.
  std::optional<ckpt::Error> failure() const;

 private:
  static void run(const std::stop_token& stop, State& state, Comm& comm, Comm& first);

  const std::unique_ptr<Comm> comm_;
  const std::shared_ptr<State> state_;
  int64_t waited_ns_ = 0;
  std::jthread thread_;  // last: it uses the others
};

// `first` with a thread beside it, over `second`, another communicator of the same group. Comm::
// comm_thread() returns the thread; everything else is `first`. abort(), from any thread, and any
// failure abort both. A collective that fails because a job did returns the error of the job, which
// may be no loss of a peer.
std::unique_ptr<Comm> with_comm_thread(std::unique_ptr<Comm> first, std::unique_ptr<Comm> second);

}  // namespace moetrain
