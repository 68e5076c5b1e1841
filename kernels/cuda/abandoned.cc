#include "kernels/cuda/abandoned.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace ckpt::kernels {

namespace {

struct Abandoned {
  std::mutex mutex;
  std::vector<cudaStream_t> streams;
  std::vector<std::function<void()>> noted;
  bool for_good = false;  // as if one of them ran for ever
};

// Never destroyed: queues may go later than any other static object.
Abandoned& abandoned() {
  static auto* const all = new Abandoned;
  return *all;
}

bool is_running(cudaStream_t stream) {
  const bool running = cudaStreamQuery(stream) == cudaErrorNotReady;
  (void)cudaGetLastError();
  return running;
}

}  // namespace

void abandon(cudaStream_t stream, std::function<void()> give_back) {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.mutex);
  all.streams.push_back(stream);
  all.noted.push_back(std::move(give_back));
}

void give_back_when_idle(std::function<void()> give_back) {
  std::vector<std::function<void()>> noted;
  {
    Abandoned& all = abandoned();
    const std::lock_guard lock(all.mutex);
    // Destroyed with what was noted when it was given up: so all of them are asked before.
    std::erase_if(all.streams, [](cudaStream_t stream) { return !is_running(stream); });
    if (all.for_good || !all.streams.empty()) {
      all.noted.push_back(std::move(give_back));
      return;
    }
    noted = std::exchange(all.noted, {});
  }
  // Not under the lock: to free waits for the device, which may wait for another thread.
  for (const auto& earlier : noted) earlier();
  give_back();
}

bool any_abandoned() {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.mutex);
  return all.for_good || std::any_of(all.streams.begin(), all.streams.end(), is_running);
}

void give_back_nothing() {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.mutex);
  all.for_good = true;
}

}  // namespace ckpt::kernels
