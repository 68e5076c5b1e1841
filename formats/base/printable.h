// Names and reasons from outside, as messages and logs show them.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::base {

// The first `bytes_max` bytes of `text`, with '?' for all that is not printable ASCII and "..." if
// there is more. What is refused may be megabytes of anything, and ends up in logs and terminals.
std::string printable(std::string_view text, size_t bytes_max = 128);

// A message of ours that names many things: its first `bytes_max` bytes, never half a character,
// and "..." if there is more.
std::string shortened(std::string text, size_t bytes_max);

}  // namespace ckpt::base
