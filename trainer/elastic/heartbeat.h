// Heartbeat: reports to the supervisor, at intervals, that this process runs.
//
// A separate thread sends, so that neither a long step nor a wait delays it. It sends nothing while
// the process is stopped, frozen, or gets no CPU: then the supervisor's timeout expires
// (watchdog.h), while peers see open but silent connections.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/elastic/events.h"

namespace moetrain {

class Heartbeat {
 public:
  // Sends until destroyed. `every` of zero: never. `events` outlives it.
  Heartbeat(EventWriter& events, std::chrono::milliseconds every);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace moetrain
