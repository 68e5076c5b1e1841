#include "trainer/elastic/heartbeat.h"

namespace moetrain {

Heartbeat::Heartbeat(EventWriter& events, std::chrono::milliseconds every) {
  if (every.count() == 0) return;
  thread_ = std::jthread([this, &events, every](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      events.write(AliveEvent{});
      stopped_.wait_for(lock, stop, every, [] { return false; });
    }
  });
}

}  // namespace moetrain
