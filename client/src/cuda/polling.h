// PollPause: the pause between two looks at a device, whose own waits have no bound. None as long
// as the last news is fresh: most of what is waited for comes soon, and a sleep of 5 us takes 55.
#pragma once

#include <chrono>
#include <thread>

#include "client/src/deadline.h"

namespace ckpt::lib {

class PollPause {
 public:
  void news() { last_news_ = Clock::now(); }
  void pause() const {
    if (Clock::now() - last_news_ > kEagerly) std::this_thread::sleep_for(kShortest);
  }

 private:
  static constexpr std::chrono::microseconds kEagerly{200};
  static constexpr std::chrono::microseconds kShortest{5};
  Clock::time_point last_news_ = Clock::now();
};

}  // namespace ckpt::lib
