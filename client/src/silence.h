// Silence: time without an answer of the daemon, as seen by one session.
//
// Silence begins with the loss of the connection, or with a heartbeat that gets no answer. It ends
// with the next message, or when the session is ready again. It counts only up to the last poll of
// the socket: a process that was itself stopped finds the answer there and reports no silence.
#pragma once

#include <optional>

#include "client/src/deadline.h"

namespace ckpt::lib {

class Silence {
 public:
  // 0: no heartbeats; only a lost connection is silence then.
  explicit Silence(uint32_t heartbeat_ms) : every_(heartbeat_ms) {}

  // True if a heartbeat is due. Call only while the session is ready.
  bool heartbeat_due(Clock::time_point now) const {
    return every_.count() != 0 && !asked_ && now >= next_;
  }
  void asked(Clock::time_point now) {
    asked_ = true;
    if (!since_) since_ = now;
  }
  void answered(Clock::time_point now) {
    asked_ = false;
    next_ = now + every_;
    since_.reset();
  }
  // Any other message of the daemon.
  void on_message(Clock::time_point now) {
    since_.reset();
    if (asked_) since_ = now;
  }
  void lost(Clock::time_point now) {
    asked_ = false;
    if (!since_) since_ = now;
  }
  void ready() { since_.reset(); }
  // The socket was read until it was empty.
  void polled(Clock::time_point now) { polled_ = now; }

  uint64_t ms() const {
    if (!since_ || polled_ <= *since_) return 0;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(polled_ - *since_).count());
  }

 private:
  const std::chrono::milliseconds every_;
  bool asked_ = false;  // a heartbeat waits for its answer
  Clock::time_point next_{};
  std::optional<Clock::time_point> since_;
  Clock::time_point polled_{};
};

}  // namespace ckpt::lib
