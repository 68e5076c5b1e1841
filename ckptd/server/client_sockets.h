// ClientSockets: the two sockets that clients connect to, and the protection of the loop against
// descriptors that clients pass.
//
//   PATH         sessions. The kernel refuses descriptors if it can (RightsOption).
//   PATH.arena   trainers hand their arenas back (HandBack). Descriptors are always allowed.
//
// A libckpt of protocol version 2 passes its arena with Hello, on the main socket. The kernel
// refuses that with EPERM; libckpt then hangs up silently, and retries within 100 ms. So after a
// silent hang-up by an allowed user, the main socket allows descriptors for a few seconds. These
// connections, and all on kernels that cannot refuse descriptors, are read through Quarantine.
//
// Loop thread only.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ckptd/config.h"
#include "ckptd/server/admission.h"
#include "ckptd/server/connection.h"
#include "ckptd/server/hand_back.h"
#include "ckptd/server/listener.h"
#include "ckptd/server/quarantine.h"
#include "ckptd/server/rights_option.h"
#include "ckptd/server/service_manager.h"
#include "ckptd/server/socket_watch.h"
#include "ckptd/server/unix_socket.h"
#include "formats/base/result.h"

namespace ckptd {

class ClientSockets {
 public:
  using Clock = std::chrono::steady_clock;
  using Socket = Listener::Socket;

  // Binds the addresses. Nobody can connect yet, unless a service manager opened the sockets.
  static ckpt::Result<std::unique_ptr<ClientSockets>> bind(asio::io_context& loop,
                                                           const Config& config,
                                                           ServiceManager& manager,
                                                           RightsOption rights,
                                                           std::function<void(Socket)> accepted);
  // From now on clients can connect, and wait for start().
  ckpt::Status listen();
  void start();
  void tick(Clock::time_point now);
  // Stops accepting; existing connections stay.
  void close();
  // Why no new session can connect, as one sentence; empty while they can.
  std::string fault() const;
  // The part of fault() about ckptd itself: connections are waiting, but cannot be accepted.
  const std::string& accept_fault() const { return main_.fault(); }
  // Why no trainer can hand its arena back on PATH.arena; empty while trainers can.
  std::string arena_fault() const;

  // How to treat descriptors that this client passes on this socket.
  Connection::Descriptors descriptors_of(int socket, uid_t uid);
  // A connection of `uid`, which may connect, ended before its first byte.
  void ended_silently();
  HandBack& hand_back() { return hand_back_; }
  Quarantine& quarantine() { return *quarantine_; }

 private:
  ClientSockets(asio::io_context& loop, const Config& config, RightsOption rights,
                std::unique_ptr<Quarantine> quarantine, std::function<void(Socket)> accepted);
  ckpt::Status bind_main(ServiceManager& manager);
  void bind_arena(ServiceManager& manager);
  ckpt::Status listen_main();
  void listen_arena();
  void keep_files(Clock::time_point now);
  void report_full(Clock::time_point now);

  const Config& config_;
  const RightsOption rights_;
  const Admission admission_;
  std::unique_ptr<Quarantine> quarantine_;
  HandBack hand_back_;
  Listener main_;
  Listener arena_;
  std::string path_;                           // of the main socket
  std::unique_ptr<UnixSocketFile> main_file_;  // null if a service manager opened the socket
  std::unique_ptr<UnixSocketFile> arena_file_;
  std::optional<SocketWatch> main_watch_;  // of main_file_
  std::optional<SocketWatch> arena_watch_;
  ckpt::base::UniqueFd inherited_main_;
  ckpt::base::UniqueFd inherited_arena_;
  bool kernel_refuses_ = false;
  std::optional<Clock::time_point> rights_until_;  // until then the main socket allows descriptors
  std::optional<Clock::time_point> full_reported_;
  bool closed_ = false;
};

}  // namespace ckptd
