// ServiceManager: the daemon's end of systemd's interfaces, spoken directly: sd_notify(3) datagrams
// on $NOTIFY_SOCKET, sockets and kept descriptors from $LISTEN_FDS (sd_listen_fds(3)), pings for
// $WATCHDOG_USEC (sd_watchdog_enabled(3)). Without these variables every call does nothing.
//
// Loop thread only. A missing service manager is no error: a message that cannot be sent is not
// retried, and no call blocks for longer than kNotifyDeadline.
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

// The values of the variables, parsed. Variables meant for another process count as missing;
// invalid ones are left out, with a sentence in `complaints`.
struct ServiceEnvironment {
  std::string notify_socket;                          // empty: no service manager
  std::optional<std::chrono::microseconds> watchdog;  // longest interval between pings
  std::vector<std::string> fd_names;                  // of descriptors 3, 4, ...; "": no name
  std::vector<std::string> complaints;
};
ServiceEnvironment read_service_environment(const std::map<std::string, std::string>& variables,
                                            pid_t own);

class ServiceManager final : public MemoryKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  // `fds`: in the order of environment.fd_names; owned by this object.
  ServiceManager(const ServiceEnvironment& environment, std::vector<ckpt::base::UniqueFd> fds);
  // For this process: takes the descriptors and removes the variables from the environment. Call
  // this before anything else is opened and before any thread is started.
  static ServiceManager of_this_process();

  // The sockets to listen on, if the service manager opened them; once. The socket whose path ends
  // in .arena takes arenas back (server/hand_back.h).
  ckpt::base::UniqueFd take_listener() { return std::move(listener_); }
  ckpt::base::UniqueFd take_arena_listener() { return std::move(arena_listener_); }

  void ready();
  void stopping();
  // Pings once half of the watchdog interval is over. The loop calls this, so that systemd detects
  // a blocked loop.
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
