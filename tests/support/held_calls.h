// HeldCalls stops threads of another process at the entry of chosen system calls, by ptrace. All
// other threads go on, and the first thread is never stopped. In ckptd that is the loop: it still
// answers, while its workers cannot, for example, make a segment file. Thus a test can hold slabs
// in a state, without a switch in the daemon.
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
  // Holds all threads that the process has by the end of the constructor. `calls`: numbers as in
  // <sys/syscall.h>. `path`: only calls whose first argument is a descriptor of a file with this in
  // its path. `thread`: only threads with this name. Fails the test if the process may not be
  // traced.
  HeldCalls(pid_t process, std::set<long> calls, std::string path = {}, std::string thread = {});
  HeldCalls(const HeldCalls&) = delete;
  HeldCalls& operator=(const HeldCalls&) = delete;
  // Releases all held threads. If the process was killed, destroy this before waiting for its end,
  // which the held threads delay.
  ~HeldCalls();

  // True once a thread is held; false if none is within `timeout`. A test that relies on the hold
  // checks this, because the process may have come to use another call.
  bool await_one(std::chrono::milliseconds timeout);

 private:
  void seize(pid_t process);
  void watch();
  void take(pid_t thread, int status);
  void release(pid_t thread);

  const std::set<long> calls_;
  const std::string path_;
  const std::string thread_;
  const base::UniqueFd release_;  // eventfd
  // Used by the tracing thread alone once it runs: ptrace belongs to one thread.
  std::set<pid_t> running_;
  std::set<pid_t> held_;
  std::mutex mutex_;
  std::condition_variable held_changed_;
  bool held_one_ = false;  // under mutex_
  std::thread tracer_;
};

}  // namespace ckpt::test
