#include "client/ctl/daemon_watch.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "formats/base/parse.h"
#include "formats/base/unique_fd.h"
#include "formats/base/unix_address.h"

namespace ckptctl {
namespace {

// About two seconds, including the heartbeat that detects the silence.
constexpr std::chrono::milliseconds kReportAfter{1'500};
// A restart of ckptd on a large store takes seconds.
constexpr std::chrono::milliseconds kExpireAfter{60'000};
constexpr std::chrono::milliseconds kProbeEvery{5'000};

}  // namespace

bool DaemonWatch::poll(const Seen& seen) {
  const std::chrono::milliseconds silence(seen.silence_ms);
  if (silence < kReportAfter) {
    // Another session's silence may be 0 because it has not polled since before the outage.
    if (reported_ && seen.silence_ms == 0 && seen.session == silent_session_) {
      options_.say(fmt::format("ckptd at socket {} answers again, after {}", options_.socket,
                               ckpt::base::format_age(silence_)));
      reported_.reset();
    }
    return false;
  }
  const Clock::time_point now = options_.now();
  // This outage began after the last one was seen: the last one is over, and its session is closed.
  if (reported_ && now - silence > silent_at_) reported_.reset();
  silent_session_ = seen.session;
  silence_ = silence;
  silent_at_ = now;
  const bool listens = seen.connected || probe(now);
  if (listens) listened_ = now;
  if (is_news(listens, now)) report(listens);
  const auto absent = std::min<Clock::duration>(silence, now - listened_);
  if (!options_.expires || absent < kExpireAfter) return false;
  expired_ = ckpt::make_error(
      ckpt::ErrorCode::kUnavailable,
      "no ckptd has listened at socket {} for {}: start it again, then repeat the command",
      options_.socket, ckpt::base::format_age(absent));
  return true;
}

bool DaemonWatch::probe(Clock::time_point now) {
  if (!probed_at_ || now - *probed_at_ >= kProbeEvery) {
    probed_at_ = now;
    probe_found_ = options_.listens(options_.socket);
  }
  return probe_found_;
}

// A restarting ckptd accepts and refuses connections in turns until it is ready. So a change counts
// only after it has lasted.
bool DaemonWatch::is_news(bool listens, Clock::time_point now) {
  if (!reported_) return true;
  if (*reported_ == listens) {
    differs_since_.reset();
    return false;
  }
  if (!differs_since_) differs_since_ = now;
  return now - *differs_since_ >= kReportAfter;
}

void DaemonWatch::report(bool listens) {
  reported_ = listens;
  differs_since_.reset();
  options_.say(
      listens ? fmt::format("ckptd at socket {} has not answered for {}; still waiting",
                            options_.socket, ckpt::base::format_age(silence_))
              : fmt::format("no ckptd listens at socket {}; waiting for one", options_.socket));
}

ckpt::Error with_silence(ckpt::Error error, const std::string& socket,
                         std::chrono::milliseconds silence, bool connected) {
  if (silence < kBlamedSilence) return error;
  const std::string age = ckpt::base::format_age(silence);
  if (connected) {
    return ckpt::make_error(ckpt::ErrorCode::kDeadlineExceeded,
                            "ckptd at socket {} has not answered for {}: look at its log, then "
                            "repeat the command ({})",
                            socket, age, error.message);
  }
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                          "no ckptd has served socket {} for {}: start it again, then repeat the "
                          "command ({})",
                          socket, age, error.message);
}

// Returns whether a server has the socket. A datagram socket cannot connect to ckptd's stream
// socket, but the error tells: EPROTOTYPE if a server has the socket, ECONNREFUSED if it has ended.
bool socket_has_listener(const std::string& socket) {
  const auto address = ckpt::base::UnixAddress::of(socket);
  if (!address.ok()) return false;
  const ckpt::base::UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return true;  // not known
  return ::connect(fd.get(), address->get(), address->size()) == 0 ||
         (errno != ECONNREFUSED && errno != ENOENT);
}

}  // namespace ckptctl
