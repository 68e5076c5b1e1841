// What a call says that has run out of the host's memory. A lack of slabs has the same status, and
// another sentence: it passes, while what such a call has left behind cannot be gone on with.
#pragma once

namespace ckpt::lib {

// So short that it needs no memory itself.
inline constexpr const char* kOutOfMemory = "out of memory";

}  // namespace ckpt::lib
