// UTF-8, as RFC 3629 defines it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ckpt::base {

// The first character of `text`, which is not empty. If the first bytes are no well-formed
// character: one byte, with its value as `code`.
struct Utf8Character {
  size_t bytes = 1;
  uint32_t code = 0;
  bool well_formed = false;
};
Utf8Character first_utf8_character(std::string_view text);

// True if `text` is well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace ckpt::base
