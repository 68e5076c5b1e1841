// DaemonWatch: reports that ckptd does not answer, while a verb waits.
//
// libckpt reconnects silently. Without the watch, a verb whose ckptd was killed or hangs would be
// silent for a minute. The watch reports the socket after about two seconds, then each change
// between hanging and gone, and the recovery. Once no process has listened at the socket for a
// minute, the watch ends the wait. A slow daemon is left to the verb's own timeout. One watch
// serves all sessions of a verb, which use the same daemon.
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
    std::string socket;   // path of the socket, for messages and for `listens`
    bool expires = true;  // end the wait after a minute without a listener
    std::function<void(const std::string& line)> say;
    // True if a process listens. Called at most every five seconds, and only without a connection.
    std::function<bool(const std::string& socket)> listens;
    std::function<Clock::time_point()> now = Clock::now;
  };
  explicit DaemonWatch(Options options) : options_(std::move(options)) {}

  // State of the daemon, as seen by the session whose call waits.
  struct Seen {
    const void* session = nullptr;  // tells the sessions apart
    uint64_t silence_ms = 0;        // as ckpt_silence_ms()
    bool connected = false;         // the session has a connection, whether or not it is answered
  };
  // Called while a call waits. True: end the wait.
  bool poll(const Seen& seen);
  // Why the watch ended the wait; nullopt if it did not.
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
  std::optional<bool> reported_;   // last report of an outage: true: ckptd hangs; false: it is gone
  std::optional<Clock::time_point> differs_since_;  // since when reported_ has been wrong
  Clock::time_point listened_{};                    // when a listener was last seen
  std::optional<Clock::time_point> probed_at_;
  bool probe_found_ = false;
};

// Minimum time without an answer for a wait's error to blame the daemon.
inline constexpr std::chrono::milliseconds kBlamedSilence{1'500};

// The error of a wait that ended: `error`, or, if the daemon was silent, one that names the socket
// and the remedy. `connected`: the session has a connection.
ckpt::Error with_silence(ckpt::Error error, const std::string& socket,
                         std::chrono::milliseconds silence, bool connected);

// True if a server has the socket, or if that is unknown. Does not enter the listen queue.
bool socket_has_listener(const std::string& socket);

}  // namespace ckptctl
