// DaemonProbe: asks ckptd again and again whether it answers, on a thread of its own.
//
// A process that is stopped, or stuck, keeps its socket open: only a question that stays without an
// answer tells. Silence counts up to the last look at the socket, so that a supervisor that was
// stopped itself blames nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace moetrain {

class DaemonProbe {
 public:
  // Asks from now on until it is destroyed.
  explicit DaemonProbe(std::string socket);
  DaemonProbe(const DaemonProbe&) = delete;
  DaemonProbe& operator=(const DaemonProbe&) = delete;

  // How long ckptd has not answered, for whatever reason; 0 while it does.
  uint64_t silent_ms() const { return silent_ms_.load(); }
  // Nobody listens on its socket; false: it listens, or this is not known yet.
  bool gone() const { return gone_.load(); }
  // Silence that counts towards `--daemon-timeout-ms`: without the part before `forgive()`.
  uint64_t hangs_ms() const;
  // There is another ckptd now, or none yet: its silence is nobody's fault so far.
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
