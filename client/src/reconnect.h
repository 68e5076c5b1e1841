// Reconnect: when a session without a daemon tries to connect again, and why it has none.
//
// The backoff starts at 10 ms, doubles with every loss up to 100 ms, and starts anew once the
// session is ready.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "client/src/deadline.h"
#include "formats/base/result.h"

namespace ckpt::lib {

class Reconnect {
 public:
  // A failed connect costs microseconds, and a rank that is late delays all others.
  static constexpr std::chrono::milliseconds kBackoffMin{10};
  static constexpr std::chrono::milliseconds kBackoffMax{100};
  static constexpr std::chrono::milliseconds kPauseAfterMisfit{1'000};

  // Earliest time of the next attempt.
  Clock::time_point next_attempt() const { return next_attempt_; }
  bool is_due(Clock::time_point now) const { return now >= next_attempt_; }

  void lost(Error why, Clock::time_point now) {
    refused_ = false;
    why_ = std::move(why);
    next_attempt_ = now + backoff_;
    backoff_ = std::min(backoff_ * 2, kBackoffMax);
  }
  // The daemon is there and does not fit: the next attempt can wait.
  void not_before(Clock::time_point time) { next_attempt_ = std::max(next_attempt_, time); }
  // The loss was an error answer of the daemon.
  void refused() { refused_ = true; }
  void ready() {
    backoff_ = kBackoffMin;
    why_.reset();
  }

  // Reason of the last loss; nullopt if the session was ready since.
  const std::optional<Error>& why() const { return why_; }
  // The error of the call `what` that found no daemon on `socket` in time.
  Error timed_out(std::string_view what, std::string_view socket) const {
    // A daemon's refusal needs no added context.
    if (why_ && refused_) return *why_;
    if (why_) return reworded(*why_, fmt::format("{}: {}", what, why_->message));
    return make_error(ErrorCode::kUnavailable, "{}: socket {}: ckptd did not answer in time", what,
                      socket);
  }

 private:
  Clock::time_point next_attempt_{};
  std::chrono::milliseconds backoff_{kBackoffMin};
  std::optional<Error> why_;
  bool refused_ = false;
};

}  // namespace ckpt::lib
