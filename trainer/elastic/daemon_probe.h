// DaemonProbe: does ckptd answer?
//
// A process that is stopped, or stuck, keeps its socket open: whoever asks it waits. A thread of
// this object asks again and again, each time for a second at most. What counts as silence are
// questions that were waited for in vain, not time: a supervisor that was stopped itself blames
// nobody.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace moetrain {

class DaemonProbe {
 public:
  // Asks from now on until it is destroyed.
  explicit DaemonProbe(std::string socket);
  DaemonProbe(const DaemonProbe&) = delete;
  DaemonProbe& operator=(const DaemonProbe&) = delete;

  // For so long it has been asked without an answer.
  uint64_t silent_ms() const { return silent_ms_.load(); }
  // Begins to count anew: there is another one, or none for now.
  void forgive() { silent_ms_ = 0; }

 private:
  void run(const std::stop_token& stop);

  const std::string socket_;
  std::atomic<uint64_t> silent_ms_{0};
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace moetrain
