// Heartbeat: tells the supervisor, again and again, that this process runs.
//
// A thread of its own beats, so that neither a long step nor a wait for others keeps it from doing
// so. It stops when the process is stopped, frozen, or gets no CPU any more: then the supervisor
// hears nothing (watchdog.h), while peers see connections that are open and silent.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/elastic/events.h"

namespace moetrain {

class Heartbeat {
 public:
  // Beats from now on until it is destroyed. `every` of zero: never. `events` outlives it.
  Heartbeat(EventWriter& events, std::chrono::milliseconds every);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace moetrain
