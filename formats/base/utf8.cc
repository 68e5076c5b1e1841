#include "formats/base/utf8.h"

#include <cstddef>

namespace ckpt::base {
namespace {

// First bytes [first, last] start a sequence of `length` bytes. Its second byte lies in
// [second_min, second_max], later bytes in [0x80, 0xbf]. (Unicode standard, table 3-7.)
struct Row {
  unsigned char first;
  unsigned char last;
  size_t length;
  unsigned char second_min;
  unsigned char second_max;
};
constexpr Row kRows[] = {
    {0x00, 0x7f, 1, 0, 0},       {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf},
    {0xe1, 0xec, 3, 0x80, 0xbf}, {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
    {0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
};

// Bytes of the well-formed character that `text` starts with; 0: it starts with none.
size_t character_bytes(std::string_view text) {
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (const Row& row : kRows) {
    if (at(0) < row.first || at(0) > row.last) continue;
    if (text.size() < row.length) return 0;
    if (row.length > 1 && (at(1) < row.second_min || at(1) > row.second_max)) return 0;
    for (size_t i = 2; i < row.length; ++i) {
      if (at(i) < 0x80 || at(i) > 0xbf) return 0;
    }
    return row.length;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace ckpt::base
