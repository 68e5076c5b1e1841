#include "trainer/checkpoint/daemon_patience.h"

namespace moetrain {

namespace {

constexpr uint32_t kHeartbeatMs = 200;

}  // namespace

void DaemonPatience::set_options(ckpt::client::OpenOptions& options) {
  options.heartbeat_ms = kHeartbeatMs;
  options.interrupted = [](void* patience) -> int {
    return static_cast<DaemonPatience*>(patience)->ends_call() ? 1 : 0;
  };
  options.interrupted_context = this;
}

bool DaemonPatience::ends_call() {
  longest_ms_ = std::max(longest_ms_, silence_ms());
  return over();
}

}  // namespace moetrain
