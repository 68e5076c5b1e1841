// Backoff: how a thread waits for a device by asking it again and again. CUDA's own waits have no
// bound, so every wait with one is made of questions.
//
//   for (Backoff backoff; !happened(); backoff.pause()) { ... }
//
// It spins at first, since most waits end soon. Later it sleeps: a sleep costs Linux 50 us more
// than it is asked for, which is little of a long wait, and much of a short one.
#pragma once

#include <chrono>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ckpt::kernels {

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kSpin{200};
  static constexpr std::chrono::microseconds kSleep{5};

  // Between two questions. The first kSpin of a wait, a microsecond or two each.
  void pause() {
    if (Clock::now() - begin_ >= kSpin) {
      std::this_thread::sleep_for(kSleep);
      return;
    }
    constexpr int kRelaxed = 32;
    for (int i = 0; i < kRelaxed; ++i) relax();
  }
  // Something has moved: another wait begins.
  void restart() { begin_ = Clock::now(); }
  Clock::duration waited() const { return Clock::now() - begin_; }

 private:
  // Tells the processor that this is a spin: the core's other thread goes faster meanwhile.
  static void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  Clock::time_point begin_ = Clock::now();
};

}  // namespace ckpt::kernels
