// DaemonProbe: sends heartbeats to ckptd, on a thread of its own.
//
// A stopped or stuck process keeps its socket open: only an unanswered request shows it. Silence
// counts up to the last read of the socket, so a supervisor that was stopped itself does not blame
// ckptd.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace moetrain {

class DaemonProbe {
 public:
  // Sends heartbeats until destroyed.
  explicit DaemonProbe(std::string socket);
  DaemonProbe(const DaemonProbe&) = delete;
  DaemonProbe& operator=(const DaemonProbe&) = delete;

  // Time without an answer of ckptd, for any reason; 0 while it answers.
  uint64_t silent_ms() const { return silent_ms_.load(); }
  // True if no process listens on the socket; false: ckptd listens, or the state is not known yet.
  bool gone() const { return gone_.load(); }
  // Silence that counts towards `--daemon-timeout-ms`: without the part before `forgive()`.
  uint64_t hangs_ms() const;
  // Forgives the silence so far: a new ckptd is starting.
  void forgive() { forgiven_ms_ = silent_ms_.load(); }
  // Bytes that ckptd has written to segments: grows while the disk makes progress.
  uint64_t bytes_written() const { return bytes_written_.load(); }

 private:
  void run(const std::stop_token& stop);
  void set_silent_ms(uint64_t silent_ms);

  const std::string socket_;
  std::atomic<uint64_t> silent_ms_{0};
  std::atomic<bool> gone_{false};
  std::atomic<uint64_t> forgiven_ms_{0};
  std::atomic<uint64_t> bytes_written_{0};
  std::jthread thread_;  // last: it uses the others
};

}  // namespace moetrain
