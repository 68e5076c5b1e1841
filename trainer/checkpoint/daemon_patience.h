// DaemonPatience: how long calls of one session wait for a ckptd that does not answer.
//
// Training must not stop because ckptd is down or hangs. A wait for a free slab is different: ckptd
// answers, and the disk is slow. The session's heartbeats distinguish the two.
//
// Used by one thread at a time, like the session. Outlives it; must not move while it is open.
#pragma once

#include <algorithm>
#include <chrono>
#include <ckpt/client.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace moetrain {

class DaemonPatience {
 public:
  using Clock = std::chrono::steady_clock;

  // Silence after which ckptd counts as absent and no snapshot is begun.
  static constexpr uint32_t kAbsentMs = 1'000;
  // Timeout of a call in the middle of a snapshot.
  static constexpr uint32_t kTrainingMs = 1'000;

  DaemonPatience() = default;
  DaemonPatience(const DaemonPatience&) = delete;
  DaemonPatience& operator=(const DaemonPatience&) = delete;

  // Makes the session opened with these options follow this object.
  void set_options(ckpt::client::OpenOptions& options);
  // Call this once the session is open.
  void follow(const ckpt::client::Session& session) { session_ = session.handle(); }

  uint64_t silence_ms() const { return session_ == nullptr ? 0 : ckpt_silence_ms(session_); }

  // True if a wait for ckptd must end. Polled by waiting calls, and by other code that waits.
  bool ends_call() { return ends_call(Clock::now()); }
  bool ends_call(Clock::time_point now);
  // True if calls of the session end now, because of the silence limit or the deadline below.
  bool over() const { return silent_too_long() || (end_ && Clock::now() >= *end_); }

  // Scope: calls of the session end once ckptd has not answered for this long. 0: only their own
  // timeouts apply.
  class Limit {
   public:
    Limit(DaemonPatience& patience, uint32_t silence_ms_max) : patience_(patience) {
      patience_.silence_ms_max_ = silence_ms_max;
      patience_.longest_ms_ = 0;
    }
    ~Limit() { patience_.silence_ms_max_ = 0; }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;
    bool over() const { return patience_.silent_too_long(); }
    // The longest silence that a waiting call has seen.
    uint64_t silence_ms() const { return patience_.longest_ms_; }

   private:
    DaemonPatience& patience_;
  };

  // Scope: calls of the session end at this time, regardless of their timeouts.
  class Deadline {
   public:
    Deadline(DaemonPatience& patience, Clock::time_point end) : patience_(patience) {
      patience_.end_ = end;
    }
    ~Deadline() { patience_.end_.reset(); }
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

   private:
    DaemonPatience& patience_;
  };

  // While this object lives, `on_waited` is called once, after calls have waited for `after` in
  // total. Work between waits, such as the copy of a slab, does not count if it takes longer than
  // the interval at which a waiting call polls. `on_waited` must not call the session.
  class LongWait {
   public:
    LongWait(DaemonPatience& patience, Clock::duration after, std::function<void()> on_waited)
        : patience_(patience) {
      patience_.waited_ = {};
      patience_.asked_at_.reset();
      patience_.on_waited_after_ = after;
      patience_.on_waited_ = std::move(on_waited);
    }
    ~LongWait() { patience_.on_waited_ = nullptr; }
    LongWait(const LongWait&) = delete;
    LongWait& operator=(const LongWait&) = delete;

   private:
    DaemonPatience& patience_;
  };

 private:
  bool silent_too_long() const { return silence_ms_max_ != 0 && silence_ms() >= silence_ms_max_; }

  const ckpt_session* session_ = nullptr;
  uint32_t silence_ms_max_ = 0;
  uint64_t longest_ms_ = 0;
  std::optional<Clock::time_point> end_;
  std::optional<Clock::time_point> asked_at_;  // the last ends_call(); unset: none in this wait
  Clock::duration waited_{};
  Clock::duration on_waited_after_{};
  std::function<void()> on_waited_;  // empty: not wanted, or already called
};

}  // namespace moetrain
