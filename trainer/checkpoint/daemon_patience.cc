#include "trainer/checkpoint/daemon_patience.h"

namespace moetrain {

namespace {

constexpr uint32_t kHeartbeatMs = 200;
// A call that waits asks more often than this: libckpt every 50 ms.
constexpr std::chrono::milliseconds kOneWait{100};

}  // namespace

void DaemonPatience::set_options(ckpt::client::OpenOptions& options) {
  options.heartbeat_ms = kHeartbeatMs;
  options.interrupted = [](void* patience) -> int {
    return static_cast<DaemonPatience*>(patience)->ends_call() ? 1 : 0;
  };
  options.interrupted_context = this;
}

bool DaemonPatience::ends_call(Clock::time_point now) {
  longest_ms_ = std::max(longest_ms_, silence_ms());
  const auto before = std::exchange(asked_at_, now);
  if (before && now - *before <= kOneWait) waited_ += now - *before;
  if (on_waited_ && waited_ >= on_waited_after_) std::exchange(on_waited_, nullptr)();
  return over();
}

}  // namespace moetrain
