// ServiceManager: the daemon's end of systemd's interfaces, spoken directly: sd_notify(3) datagrams
// on $NOTIFY_SOCKET, sockets and kept descriptors from $LISTEN_FDS (sd_listen_fds(3)), pings for
// $WATCHDOG_USEC (sd_watchdog_enabled(3)). Without these variables every call does nothing.
//
// Loop thread only. Nobody to tell is no reason to stop: what cannot be sent is not tried again,
// and no call blocks for longer than kNotifyDeadline.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/staging/memory_keeper.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// What the variables say, and nothing else. Those meant for another process count as not there;
// what makes no sense is left out, with a sentence in `complaints`.
struct ServiceEnvironment {
  std::string notify_socket;                          // empty: nobody listens
  std::optional<std::chrono::microseconds> watchdog;  // pings are to come at least so often
  std::vector<std::string> fd_names;  // of the descriptors 3, 4, ...; "" where there is no name
  std::vector<std::string> complaints;
};
ServiceEnvironment read_service_environment(const std::map<std::string, std::string>& variables,
                                            pid_t own);

class ServiceManager final : public MemoryKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  // `fds`: of environment.fd_names, in their order; owned from here on.
  ServiceManager(const ServiceEnvironment& environment, std::vector<ckpt::base::UniqueFd> fds);
  // Of this process: takes the descriptors over and the variables out of the environment. To be
  // called before anything else is opened or any thread begun.
  static ServiceManager of_this_process();

  // The sockets to listen on, if they were opened for us; once. The one whose path ends in .arena
  // takes arenas back (server/hand_back.h).
  ckpt::base::UniqueFd take_listener() { return std::move(listener_); }
  ckpt::base::UniqueFd take_arena_listener() { return std::move(arena_listener_); }

  void ready();
  void stopping();
  // Pings when half of the time to the next one that is due is over. To be called by the loop, so
  // that a loop that stands still is seen.
  void alive(Clock::time_point now);

  // MemoryKeeper: systemd's file descriptor store.
  std::vector<Kept> take() override { return std::exchange(kept_, {}); }
  void keep(const std::string& name, int fd) override;
  void forget(const std::string& name) override;

 private:
  void notify(const std::string& state, int fd = -1);

  std::string address_;
  ckpt::base::UniqueFd socket_;
  ckpt::base::UniqueFd listener_;
  ckpt::base::UniqueFd arena_listener_;
  std::vector<Kept> kept_;
  std::optional<Clock::duration> ping_every_;
  Clock::time_point next_ping_{};
  bool complained_ = false;
};

}  // namespace ckptd
