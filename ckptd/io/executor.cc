#include "ckptd/io/executor.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "formats/base/assert.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

namespace {

struct Task {
  std::function<void()> work;
  std::function<void()> then;
};

// Workers take tasks in order; an eventfd announces finished tasks. The destructor runs the rest of
// the queue (owners of captured state wait for outstanding() == 0 first).
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(unsigned threads) : event_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!event_fd_.valid()) {
      throw std::system_error(errno, std::generic_category(), "eventfd of the worker threads");
    }
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { loop(); });
  }

  ~ThreadExecutor() override {
    CKPT_ASSERT_MSG(outstanding_ == 0, "an executor was destroyed with work outstanding");
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    queue_changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(std::function<void()> work, std::function<void()> then) override {
    ++outstanding_;
    const std::lock_guard lock(mutex_);
    if (!work) return add_done(std::move(then));
    queue_.push_back({std::move(work), std::move(then)});
    queue_changed_.notify_one();
  }

  size_t reap() override {
    uint64_t signals = 0;
    [[maybe_unused]] const ssize_t drained = ::read(event_fd_.get(), &signals, sizeof(signals));
    std::vector<std::function<void()>> done;
    {
      const std::lock_guard lock(mutex_);
      done.swap(done_);
    }
    for (auto& then : done) {
      --outstanding_;
      if (then) then();
    }
    return done.size();
  }

  void wait() override {
    if (outstanding_ == 0) return;
    std::unique_lock lock(mutex_);
    done_changed_.wait(lock, [this] { return !done_.empty(); });
  }

  int event_fd() const override { return event_fd_.get(); }
  size_t outstanding() const override { return outstanding_; }

 private:
  void loop() {
    // Checksums must not take a core from the trainer on this node: the trainer is blocked while it
    // copies, and nothing is blocked by a check. In Linux the nice value belongs to the thread.
    constexpr int kNice = 10;
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
    std::unique_lock lock(mutex_);
    while (true) {
      queue_changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task.work();
      task.work = nullptr;  // releases its captures before the loop is notified
      lock.lock();
      add_done(std::move(task.then));
    }
  }
  // With the mutex held.
  void add_done(std::function<void()> then) {
    done_.push_back(std::move(then));
    done_changed_.notify_one();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof(one));
  }

  ckpt::base::UniqueFd event_fd_;
  size_t outstanding_ = 0;  // loop thread only
  std::mutex mutex_;
  std::condition_variable queue_changed_;
  std::condition_variable done_changed_;
  std::deque<Task> queue_;                   // guarded by mutex_
  std::vector<std::function<void()>> done_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::vector<std::thread> threads_;
};

class InlineExecutor final : public Executor {
 public:
  ~InlineExecutor() override {
    CKPT_ASSERT_MSG(queue_.empty(), "an executor was destroyed with work outstanding");
  }
  void run(std::function<void()> work, std::function<void()> then) override {
    queue_.push_back({std::move(work), std::move(then)});
  }
  size_t reap() override {
    // Tasks added by the callbacks run at the next reap, as with threads.
    std::deque<Task> tasks;
    tasks.swap(queue_);
    running_ = tasks.size();
    for (Task& task : tasks) {
      if (task.work) task.work();
      task.work = nullptr;
      --running_;
      if (task.then) task.then();
    }
    return tasks.size();
  }
  void wait() override {}
  int event_fd() const override { return -1; }
  size_t outstanding() const override { return queue_.size() + running_; }

 private:
  std::deque<Task> queue_;
  size_t running_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_thread_executor(unsigned threads) {
  CKPT_ASSERT_MSG(threads > 0, "an executor needs a thread");
  return std::make_unique<ThreadExecutor>(threads);
}

std::unique_ptr<Executor> make_inline_executor() { return std::make_unique<InlineExecutor>(); }

}  // namespace ckptd
