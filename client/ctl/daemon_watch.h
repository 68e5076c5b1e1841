// DaemonWatch: tells the user that ckptd does not answer, while a verb waits for it.
//
// libckpt reconnects to a daemon that comes back, and says nothing meanwhile. So a verb whose ckptd
// was killed or hangs would be silent for a minute. The watch says so after about two seconds, with
// the socket, again when ckptd comes back and hangs or goes, and when it answers. Once nobody has
// listened at the socket for a minute the watch ends the wait; a daemon that is there and slow is
// left to the verb's own time-out. One watch serves all sessions of a verb: they have one daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "formats/base/result.h"

namespace ckptctl {

class DaemonWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::string socket;   // its path, for messages and for asking whether anybody listens
    bool expires = true;  // end the wait once nobody has listened for a minute
    std::function<void(const std::string& line)> say;
    // Asked at most every five seconds, and only while no session has a connection.
    std::function<bool(const std::string& socket)> listens;
    std::function<Clock::time_point()> now = Clock::now;
  };
  explicit DaemonWatch(Options options) : options_(std::move(options)) {}

  // The daemon as a session sees it whose call waits.
  struct Seen {
    const void* session = nullptr;  // tells the sessions apart
    uint64_t silence_ms = 0;        // as ckpt_silence_ms()
    bool connected = false;         // the session has a connection, whether or not it is answered
  };
  // Called while a call waits. True: end the wait.
  bool poll(const Seen& seen);
  // Why it ended the wait; nullopt: it did not.
  const std::optional<ckpt::Error>& expired() const { return expired_; }

 private:
  bool probe(Clock::time_point now);
  bool is_news(bool listens, Clock::time_point now);
  void report(bool listens);

  const Options options_;
  std::optional<ckpt::Error> expired_;
  const void* silent_session_ = nullptr;  // the last session with an outage, and how long it was
  std::chrono::milliseconds silence_{0};
  Clock::time_point silent_at_{};  // when an outage was last seen
  std::optional<bool> reported_;   // of an outage: true that ckptd hangs, false that it is gone
  std::optional<Clock::time_point> differs_since_;  // since when the opposite of reported_ is true
  Clock::time_point listened_{};                    // when somebody was last seen to listen
  std::optional<Clock::time_point> probed_at_;
  bool probe_found_ = false;
};

// How long a wait has been without an answer before its end is blamed on the daemon.
inline constexpr std::chrono::milliseconds kBlamedSilence{1'500};

// The error of a wait that ended: `error`, or, if the daemon was silent meanwhile, one that names
// the socket and says what to do. `connected`: the session has a connection.
ckpt::Error with_silence(ckpt::Error error, const std::string& socket,
                         std::chrono::milliseconds silence, bool connected);

// True if a server has the socket, or if that is not known. Leaves nothing in the listen queue.
bool socket_has_listener(const std::string& socket);

}  // namespace ckptctl
