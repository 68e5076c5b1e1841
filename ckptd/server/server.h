// Server: the daemon core with real sockets, time and signals. One loop thread, the one that calls
// run(); the disk's and the executor's descriptors are read through the same loop.
#pragma once

#include <memory>

#include "ckptd/config.h"
#include "ckptd/daemon.h"
#include "ckptd/server/rights_option.h"
#include "ckptd/server/service_manager.h"
#include "formats/base/result.h"

namespace ckptd {

class Server {
 public:
  struct Parts {
    Disk& disk;
    Executor& executor;
    std::function<Result<OpenedKvStore>()> open_catalog;
    ServiceManager& manager;
    RightsOption rights = RightsOption();  // tests simulate an older kernel
  };
  // Opens the store and listens. Connections are accepted only in run().
  static Result<std::unique_ptr<Server>> open(const Config& config, const Parts& parts);
  ~Server();

  // Serves until SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR or stop(), then
  // drains. A signal inherited as ignored stays ignored. `on_ready` is called once clients are
  // accepted.
  void run(const std::function<void()>& on_ready);
  // From any thread: same as SIGTERM.
  void stop();
  int http_port() const;  // 0: no HTTP

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
