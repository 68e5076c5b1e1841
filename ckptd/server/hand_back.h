// HandBack: the socket PATH.arena, on which trainers hand their arenas back after a restart.
//
// A trainer sends the memfd of its arena with HandBack and gets a ticket. Its next Hello, on the
// main socket, names the ticket; the server fetches the memfd with take(). So the main socket needs
// no descriptors from clients, and can refuse them on kernels that support it.
//
// Loop thread only. Quarantine does all receiving and closing for this class.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ckptd/server/admission.h"
#include "ckptd/server/quarantine.h"
#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

class HandBack {
 public:
  using Socket = asio::local::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  // `admission`: the allow-list and bounds of connections to this socket.
  HandBack(asio::io_context& loop, Quarantine& quarantine, Admission admission);
  ~HandBack();

  // Serves one accepted connection.
  void serve(Socket socket);
  // Returns the memfd for this ticket, once, if `uid` brought it less than a minute ago; otherwise
  // an invalid descriptor.
  ckpt::base::UniqueFd take(const ckpt::base::Hash128& ticket, uid_t uid);
  // Drops expired tickets.
  void tick(Clock::time_point now);
  // Closes all connections.
  void close();

 private:
  class Visit;
  struct Arena {
    uid_t uid = 0;
    Quarantine::Class of = 0;
    ckpt::base::UniqueFd memory;
    Clock::time_point brought;
  };

  // After an error the caller still owns `memory`.
  ckpt::Result<ckpt::base::Hash128> keep(uid_t uid, Quarantine::Class of,
                                         ckpt::base::UniqueFd& memory);
  void ended(ckpt::SessionId visit);

  asio::io_context& loop_;
  Quarantine& quarantine_;
  Admission admission_;
  std::map<ckpt::SessionId, std::shared_ptr<Visit>> visits_;
  std::map<ckpt::base::Hash128, Arena> arenas_;
  ckpt::SessionId next_visit_ = 1;
};

}  // namespace ckptd
