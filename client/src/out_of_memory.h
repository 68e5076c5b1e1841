// Error message of a call that has run out of host memory. A lack of slabs has the same status but
// another message: it passes, while a call without memory leaves a state that cannot be used.
#pragma once

namespace ckpt::lib {

// Short, so that the string needs no allocation.
inline constexpr const char* kOutOfMemory = "out of memory";

}  // namespace ckpt::lib
