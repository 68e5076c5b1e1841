// HeldCalls: threads of another process that are about to enter a chosen system call stand still
// there, by ptrace, while all others go on. The first thread is left alone. Of ckptd that is the
// loop: it answers, while its workers cannot, say, make a segment file. So what a slab waits for
// does not come until a test wants it to, without a switch in the daemon.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "formats/base/unique_fd.h"

namespace ckpt::test {

class HeldCalls {
 public:
  // `calls`: numbers as in <sys/syscall.h>. Once it is made, no thread that the process has by then
  // passes one of them; with `path`, of calls whose first argument is a descriptor, those alone
  // that are about a file with this in its path; with `thread`, of threads with this name alone.
  // Fails the test if the process may not be traced.
  HeldCalls(pid_t process, std::set<long> calls, std::string path = {}, std::string thread = {});
  HeldCalls(const HeldCalls&) = delete;
  HeldCalls& operator=(const HeldCalls&) = delete;
  // Lets all of them go on. Of a process that was killed meanwhile, to be called before the wait
  // for its end, which these threads delay.
  ~HeldCalls();

  // True once a thread stands still; false if none does within `timeout`. A test that relies on
  // what is held asks, as the process may have come to do the same by another call.
  bool await_one(std::chrono::milliseconds timeout);

 private:
  void seize(pid_t process);
  void watch();
  void take(pid_t thread, int status);
  void let_go(pid_t thread);

  const std::set<long> calls_;
  const std::string path_;
  const std::string thread_;
  const base::UniqueFd release_;  // eventfd
  // Of the tracing thread, once it runs: ptrace belongs to one.
  std::set<pid_t> running_;
  std::set<pid_t> held_;
  std::mutex mutex_;
  std::condition_variable one_came_;
  bool held_one_ = false;  // by mutex_
  std::thread tracer_;
};

}  // namespace ckpt::test
