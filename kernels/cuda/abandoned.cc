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
  std::vector<std::function<void()>> pending;
  bool stopped = false;  // stop_freeing() was called
};

// Never destroyed: queues may be destroyed later than any other static object.
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

void abandon(cudaStream_t stream, std::function<void()> release) {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.mutex);
  all.streams.push_back(stream);
  all.pending.push_back(std::move(release));
}

void release_when_idle(std::function<void()> release) {
  std::vector<std::function<void()>> pending;
  {
    Abandoned& all = abandoned();
    const std::lock_guard lock(all.mutex);
    // Query all streams first: the pending releases below destroy them.
    std::erase_if(all.streams, [](cudaStream_t stream) { return !is_running(stream); });
    if (all.stopped || !all.streams.empty()) {
      all.pending.push_back(std::move(release));
      return;
    }
    pending = std::exchange(all.pending, {});
  }
  // Not under the lock: freeing waits for the device, which may wait for another thread.
  for (const auto& earlier : pending) earlier();
  release();
}

bool any_abandoned() {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.mutex);
  return all.stopped || std::any_of(all.streams.begin(), all.streams.end(), is_running);
}

void stop_freeing() {
  Abandoned& all = abandoned();
  const std::lock_guard lock(all.mutex);
  all.stopped = true;
}

}  // namespace ckpt::kernels
