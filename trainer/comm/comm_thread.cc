#include "trainer/comm/comm_thread.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "formats/base/assert.h"
#include "trainer/comm/forwarding_comm.h"

namespace moetrain {

// Outlives the thread while there are Job objects.
struct CommThread::State {
  std::mutex mutex;  // guards all below
  std::condition_variable_any changed;
  std::deque<Work> queue;  // without the job that runs
  uint64_t submitted = 0;
  uint64_t ended = 0;  // jobs 1 to `ended` have
  std::optional<ckpt::Error> failure;
};

Status CommThread::Job::settle() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->ended >= number_; });
  if (state_->failure) return *state_->failure;
  return {};
}

CommThread::CommThread(std::unique_ptr<Comm> comm, Comm& first)
    : comm_(std::move(comm)), state_(std::make_shared<State>()) {
  CKPT_ASSERT(comm_->rank() == first.rank() && comm_->size() == first.size());
  thread_ = std::jthread(
      [this, &first](const std::stop_token& stop) { run(stop, *state_, *comm_, first); });
}

CommThread::~CommThread() {
  bool idle = false;
  {
    const std::lock_guard lock(state_->mutex);
    idle = state_->ended == state_->submitted;
  }
  // Remaining jobs fail at once; the thread ends after the last one.
  if (!idle) comm_->abort("the communicator is closed");
  thread_.request_stop();
  thread_.join();
}

CommThread::Job CommThread::submit(Work work) {
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(work));
  state_->changed.notify_all();
  return {state_, ++state_->submitted};
}

Status CommThread::wait(const Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  const Status ended = job.settle();
  const auto waited = std::chrono::steady_clock::now() - begin;
  waited_ns_ += std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count();
  return ended;
}

void CommThread::abort(const std::string& reason) { comm_->abort(reason); }

std::optional<ckpt::Error> CommThread::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

void CommThread::run(const std::stop_token& stop, State& state, Comm& comm, Comm& first) {
  (void)::pthread_setname_np(::pthread_self(), kName);
  std::unique_lock lock(state.mutex);
  // After a request to stop, this continues until the queue is empty.
  while (state.changed.wait(lock, stop, [&state] { return !state.queue.empty(); })) {
    Work work = std::move(state.queue.front());
    state.queue.pop_front();
    if (!state.failure) {
      lock.unlock();
      const Status done = work(comm);
      if (!done.ok()) {
        // Before the aborts: a collective that they end asks for the cause.
        lock.lock();
        state.failure = done.error();
        lock.unlock();
        // Peers that wait for this job learn it from their own second communicator.
        comm.abort(done.error().message);
        first.abort(done.error().message);
      }
      work = nullptr;
      lock.lock();
    }
    ++state.ended;
    state.changed.notify_all();
  }
}

namespace {

// True for the errors of a communicator that was aborted, or whose peer is gone or hangs.
bool looks_like_loss(const ckpt::Error& error) {
  return error.code == ckpt::ErrorCode::kAborted || error.code == ckpt::ErrorCode::kUnavailable ||
         error.code == ckpt::ErrorCode::kDeadlineExceeded;
}

class PairedComm final : public ForwardingComm {
 public:
  PairedComm(std::unique_ptr<Comm> first, std::unique_ptr<Comm> second)
      : ForwardingComm(*first), first_(std::move(first)), thread_(std::move(second), *first_) {}

  CommThread* comm_thread() override { return &thread_; }
  int64_t waited_ns() const override { return first_->waited_ns() + thread_.waited_ns(); }
  void abort(const std::string& reason) override {
    first_->abort(reason);
    thread_.abort(reason);
  }

 protected:
  Status run(const Collective& collective) override {
    Status done = collective(*first_);
    if (done.ok()) return done;
    thread_.abort(done.error().message);
    // A collective that looks as if a peer were lost may be the echo of a job that failed here.
    const std::optional<ckpt::Error> failed_job = thread_.failure();
    if (failed_job && looks_like_loss(done.error()) && !looks_like_loss(*failed_job)) {
      return *failed_job;
    }
    return done;
  }

 private:
  const std::unique_ptr<Comm> first_;
  CommThread thread_;  // ends before `first_`, which it may abort
};

}  // namespace

std::unique_ptr<Comm> with_comm_thread(std::unique_ptr<Comm> first, std::unique_ptr<Comm> second) {
  return std::make_unique<PairedComm>(std::move(first), std::move(second));
}

}  // namespace moetrain
