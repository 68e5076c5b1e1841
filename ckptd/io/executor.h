// Executor: where work that would hold up the loop goes (checksums, RocksDB, codecs).
#pragma once

#include <functional>
#include <memory>

namespace ckptd {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `work` somewhere, then `then` on the loop thread. Never runs either inside this call. No
  // work: `then` alone, at the next reap, whatever others have queued.
  virtual void run(std::function<void()> work, std::function<void()> then) = 0;
  // Runs the `then`s whose work is done; returns how many.
  virtual size_t reap() = 0;
  virtual void wait() = 0;           // blocks until one is done (none outstanding: returns at once)
  virtual int event_fd() const = 0;  // -1 if it has none
  virtual size_t outstanding() const = 0;
};

// `threads` workers, a queue that is bounded by what the callers have in flight.
std::unique_ptr<Executor> make_thread_executor(unsigned threads);
// Runs work in reap(), in order: for tests and simulation.
std::unique_ptr<Executor> make_inline_executor();

}  // namespace ckptd
