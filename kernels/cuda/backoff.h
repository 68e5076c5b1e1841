// Backoff: pauses between polls of a device. CUDA's own waits have no timeout, so every bounded
// wait polls.
//
//   for (Backoff backoff; !happened(); backoff.pause()) { ... }
//
// Spins at first, since most waits end soon. Sleeps later: Linux sleeps 50 us longer than asked,
// which is little for a long wait and much for a short one.
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

  // Call between two polls. Spins during the first kSpin of a wait, a microsecond or two per call.
  void pause() {
    if (Clock::now() - begin_ >= kSpin) {
      std::this_thread::sleep_for(kSleep);
      return;
    }
    constexpr int kRelaxed = 32;
    for (int i = 0; i < kRelaxed; ++i) relax();
  }
  // Starts another wait, after progress.
  void restart() { begin_ = Clock::now(); }
  Clock::duration waited() const { return Clock::now() - begin_; }

 private:
  // Tells the processor that this is a spin loop: the core's other thread runs faster.
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
