// Streams that were given up: their work was not done when nobody could wait for it any longer.
//
// What such work uses must stay as it is, and CUDA frees nothing of a device before all of its work
// is done, which may be never. So while one of them runs, what is given back in this process is
// only noted: a process with a device that hangs ends with a message instead of hanging, too, and
// its memory goes with it. If they come to their end after all, what was noted is given back then.
//
// Known to all that is linked together: a shared library that hides these symbols, as libckpt_cuda
// does, knows its own streams, and its users theirs. So it says when it was closed whether some are
// left (any_abandoned), and a user who was told so frees nothing any more (stop_freeing). Any
// thread.
#pragma once

#include <functional>

struct CUstream_st;

namespace ckpt::kernels {

// Takes the stream over. `give_back` frees the stream and what its work uses.
void abandon(CUstream_st* stream, std::function<void()> give_back);

// Calls `give_back` now; or, while a stream that was given up still runs, in a later call of this
// when none does any more.
void release_when_idle(std::function<void()> give_back);

// Whether one that was given up still runs.
bool any_abandoned();
// For the rest of the process: somebody else's stream runs, and nobody here can ask for it.
void stop_freeing();

}  // namespace ckpt::kernels
