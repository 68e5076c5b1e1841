#include "trainer/checkpoint/daemon_patience.h"

namespace moetrain {

namespace {

constexpr uint32_t kHeartbeatMs = 200;

}  // namespace

void DaemonPatience::set_options(ckpt::client::OpenOptions& options) {
  options.heartbeat_ms = kHeartbeatMs;
  options.interrupted = [](void* patience) -> int {
    return static_cast<DaemonPatience*>(patience)->over() ? 1 : 0;
  };
  options.interrupted_context = this;
}

}  // namespace moetrain
