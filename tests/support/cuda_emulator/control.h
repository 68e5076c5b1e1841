// Controls of the emulated device for tests. CUDA has no calls for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

namespace cuda_emulator {

// Streams are late by default: their work runs only when a call needs it done. A stream with its
// bit set is eager: its work runs once its dependencies are done, at the latest at the next call of
// any thread. Bit 0 is the next stream to be made, bit 1 the one after. A missing wait shows when
// one side is late and the other is eager, so try all masks.
void make_eager(uint64_t streams);

// Work of these streams, numbered in the same way, makes no progress, whatever is called. CUDA's
// unbounded calls (wait, free, destroy) return all the same.
void make_stuck(uint64_t streams);
// Stuck streams make progress again, and no new stream will be stuck.
void unstick();

// Resets the count of run time calls. Calls [first, first + count) fail without an effect; the next
// call is 0. A failing call that frees something still frees it. Some calls neither count nor
// fail: cudaGetLastError and the like, and calls that query or set capture modes, which cost
// nothing.
void fail_calls(uint64_t first, uint64_t count);
inline void fail_no_calls() { fail_calls(0, 0); }
uint64_t calls_made();
// Number of calls so far that allocated, pinned, unpinned or freed memory, or made or destroyed a
// stream. Such calls take long, and stop the device.
uint64_t slow_calls_made();
// Number of copies so far that were given to copy engines. Stores of kernels do not count.
uint64_t copies_made();

// Splits the allocation at the byte `at` into two adjacent allocations: no copy may cross the
// boundary. They are still freed as one.
void cut_allocation(const void* at);

// Sets the number of devices. At first it is CUDA_EMULATOR_DEVICES of the environment, or 1. All
// devices share the host's memory, but an object that is made on a device belongs to that
// device.
void set_devices(int count);
// Devices with a context: a thread has chosen the device, or has made a call that needs a context
// while that was its current device. A thread that has chosen none has device 0.
std::set<int> contexts();
// Drops all contexts, as at the start of the process. The devices that threads chose stay.
void forget_contexts();

// Resources that were made or taken, and not released.
struct Holdings {
  size_t allocations = 0;  // of device memory and of pinned host memory
  size_t registered = 0;
  size_t streams = 0;
  size_t events = 0;
  bool operator==(const Holdings&) const = default;
};
Holdings holdings();

// Priorities of streams, numbered as on devices: a smaller number is a higher priority. The
// emulator ignores them when it runs work.
inline constexpr int kLowestPriority = 0;
inline constexpr int kHighestPriority = -5;
size_t streams_of_priority(int priority);

}  // namespace cuda_emulator
