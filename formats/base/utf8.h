// UTF-8, as RFC 3629 defines it.
#pragma once

#include <string_view>

namespace ckpt::base {

// True if `text` is well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace ckpt::base
