// What a test asks of the emulated device, and CUDA has no call for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

namespace cuda_emulator {

// Streams are late: their work runs when somebody must have it done. Those whose bit is set are
// eager: their work runs as soon as what it waits for is done, at the next call of anybody at the
// latest. Bit 0 is the stream that is made next, bit 1 the one after. A wait that is missing shows
// when one side of it is late and the other is not; try all masks.
void make_eager(uint64_t streams);

// The work of those streams, by the same count, does not go on however often somebody asks. What
// CUDA does without a bound (to wait, to free, to destroy) ends all the same.
void make_stuck(uint64_t streams);
// Those that are there go on, and no others will be stuck.
void unstick();

// Calls of the run time are counted from here on; `count` of them from number `first` (the next
// call is 0) fail, and nothing is done. Those that give something back do so, and fail.
// cudaGetLastError and its like neither count nor fail, nor does what asks for and sets modes of
// capture: it costs nothing.
void fail_calls(uint64_t first, uint64_t count);
inline void fail_no_calls() { fail_calls(0, 0); }
uint64_t calls_made();
// Calls so far that took memory or pinned it, or gave it back, of both kinds, or made a stream or
// ended one: those take long, and stop the device.
uint64_t slow_calls_made();
// Copies that the device's copy engines were given so far. What kernels store is none.
uint64_t copies_made();

// The allocation with the byte `at` counts as two that lie side by side, the second from there on,
// so that no copy may reach over it. Until it is freed, as one.
void cut_allocation(const void* at);

// How many devices there are from here on, until somebody says otherwise; at first as many as the
// environment's CUDA_EMULATOR_DEVICES says, else 1. All have the same memory, the host's, but what
// is made on one belongs to it.
void set_devices(int count);
// Devices that have a context: some thread has chosen them, or has made a call that needs one while
// they were its current device. For a thread that has chosen none that is device 0.
std::set<int> contexts();
// As if the process began: no context is there. What threads have chosen stays.
void forget_contexts();

// What has been made or taken and not been given back.
struct Holdings {
  size_t allocations = 0;  // of both kinds of memory
  size_t registered = 0;
  size_t streams = 0;
  size_t events = 0;
  bool operator==(const Holdings&) const = default;
};
Holdings holdings();

// Of streams, as devices have them: the smaller the number, the higher the priority. Nothing runs
// earlier for it here.
inline constexpr int kLowestPriority = 0;
inline constexpr int kHighestPriority = -5;
size_t streams_of_priority(int priority);

}  // namespace cuda_emulator
