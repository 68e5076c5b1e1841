#include "formats/base/utf8.h"

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

// The payload bits of the first byte of a sequence of this length.
constexpr uint32_t kFirstByteMask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};

}  // namespace

Utf8Character first_utf8_character(std::string_view text) {
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const Utf8Character malformed{1, at(0), false};
  for (const Row& row : kRows) {
    if (at(0) < row.first || at(0) > row.last) continue;
    if (text.size() < row.length) return malformed;
    uint32_t code = at(0) & kFirstByteMask[row.length];
    for (size_t i = 1; i < row.length; ++i) {
      const unsigned char least = i == 1 ? row.second_min : 0x80;
      const unsigned char most = i == 1 ? row.second_max : 0xbf;
      if (at(i) < least || at(i) > most) return malformed;
      code = code << 6 | (at(i) & 0x3fU);
    }
    return {row.length, code, true};
  }
  return malformed;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = first_utf8_character(text);
    if (!character.well_formed) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace ckpt::base
