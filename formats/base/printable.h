// Names from outside, as an error message shows them.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::base {

// The first 128 bytes of `text`, with '?' for all that is not printable ASCII and "..." if there is
// more. What is refused may be megabytes of anything, and ends up in logs and terminals.
std::string printable(std::string_view text);

}  // namespace ckpt::base
