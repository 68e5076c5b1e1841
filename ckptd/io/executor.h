// Executor: runs work that would block the loop (checksums, RocksDB, codecs).
#pragma once

#include <functional>
#include <memory>

namespace ckptd {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `work` on some thread, then `then` on the loop thread. Never runs either inside this call.
  // Empty `work`: runs only `then`, at the next reap, independent of other tasks.
  virtual void run(std::function<void()> work, std::function<void()> then) = 0;
  // Runs the `then`s of finished work; returns how many.
  virtual size_t reap() = 0;
  virtual void wait() = 0;           // blocks until a task is done; none outstanding: returns
  virtual int event_fd() const = 0;  // -1 if there is none
  virtual size_t outstanding() const = 0;
};

// `threads` workers; callers bound the queue by limiting their tasks in flight.
std::unique_ptr<Executor> make_thread_executor(unsigned threads);
// Runs work in reap(), in order: for tests and simulation.
std::unique_ptr<Executor> make_inline_executor();

}  // namespace ckptd
