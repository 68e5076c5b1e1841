// Abandoned streams: streams whose work did not end within the timeout.
//
// Memory that such work uses must stay as it is. CUDA frees nothing of a device before all of the
// device's work has ended, which may be never. So while an abandoned stream runs, this process
// queues its releases instead of running them: with a device that hangs, the process ends with a
// message and does not hang, too. If all abandoned streams end, the queued releases run.
//
// The state is shared by all code that is linked together. A shared library that hides these
// symbols, as libckpt_cuda does, has a state of its own. When it is closed, it reports whether
// abandoned streams are left (any_abandoned); its user then calls stop_freeing(). Any thread may
// call these functions.
#pragma once

#include <functional>

struct CUstream_st;

namespace ckpt::kernels {

// Takes the stream over. `release` frees the stream and the memory that its work uses.
void abandon(CUstream_st* stream, std::function<void()> release);

// Calls `release` now. While an abandoned stream runs, queues it: a later call of this function,
// when no abandoned stream runs, calls it.
void release_when_idle(std::function<void()> release);

// True if an abandoned stream still runs.
bool any_abandoned();
// Queues all releases for the rest of the process: a stream that this code cannot query may run.
void stop_freeing();

}  // namespace ckpt::kernels
