#include "formats/base/printable.h"

#include <algorithm>

namespace ckpt::base {

namespace {

constexpr std::string_view kMore = "...";

}  // namespace

std::string printable(std::string_view text, size_t bytes_max) {
  std::string out(text.substr(0, bytes_max));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  if (text.size() > bytes_max) out += kMore;
  return out;
}

std::string shortened(std::string text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  // Bytes 10xxxxxx of UTF-8 go on with a character that began before them.
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  text += kMore;
  return text;
}

}  // namespace ckpt::base
