#include "formats/base/printable.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "formats/base/utf8.h"

namespace ckpt::base {

namespace {

constexpr std::string_view kMore = "...";

struct Range {
  uint32_t first;
  uint32_t last;
};

// Characters that control a terminal, or that show text in another order than that of its bytes.
constexpr Range kUnprintable[] = {
    {0x00, 0x1f},       {0x7f, 0x9f},        // C0, DEL and C1 controls
    {0xad, 0xad},       {0x61c, 0x61c},      // soft hyphen; Arabic letter mark
    {0x180e, 0x180e},   {0x200b, 0x200b},    // invisible
    {0x200e, 0x200f},   {0x2028, 0x202e},    // marks of direction; line separators, overrides
    {0x2060, 0x206f},   {0xfeff, 0xfeff},    // invisible operators, isolates; byte order mark
    {0xfff9, 0xfffb},   {0x1d173, 0x1d17a},  // annotations; musical controls
    {0xe0000, 0xe007f},                      // tags
};

bool is_printable(const Utf8Character& character) {
  if (!character.well_formed) return false;
  return std::none_of(std::begin(kUnprintable), std::end(kUnprintable), [&](const Range& range) {
    return character.code >= range.first && character.code <= range.last;
  });
}

std::string escape_of(const Utf8Character& character) {
  if (character.code == '\n') return "\\n";
  if (character.code == '\r') return "\\r";
  if (character.code == '\t') return "\\t";
  char text[16];
  const bool byte = !character.well_formed || character.code < 0x80;
  std::snprintf(text, sizeof text, byte ? "\\x%02x" : "\\u{%x}", character.code);
  return text;
}

// Appends the first character of `text`, escaped where it must be; returns the bytes it has there.
size_t append_first(std::string_view text, std::string& out) {
  const Utf8Character character = first_utf8_character(text);
  if (is_printable(character)) {
    out.append(text.substr(0, character.bytes));
  } else {
    out += escape_of(character);
  }
  return character.bytes;
}

// Bytes of "ESC [ digits and semicolons m" at the start of `text`, 0 if something else is there.
size_t colour_bytes(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

std::string escaped_around_layout(std::string_view text, bool keep_colours) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t colour = keep_colours ? colour_bytes(text) : 0;
    const size_t kept = text[0] == '\n' || text[0] == '\t' ? 1 : colour;
    out.append(text.substr(0, kept));
    text.remove_prefix(kept != 0 ? kept : append_first(text, out));
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const size_t before = out.size();
    text.remove_prefix(append_first(text, out));
    if (out.size() <= bytes_max) continue;
    out.resize(before);
    out += kMore;
    break;
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) text.remove_prefix(append_first(text, out));
  return out;
}

std::string escaped_lines(std::string_view lines) { return escaped_around_layout(lines, false); }
std::string escaped_screen(std::string_view screen) { return escaped_around_layout(screen, true); }

std::string escaped_json(std::string document) {
  const auto ours = [](char c) { return c != '\x7f' && static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(document.begin(), document.end(), ours)) return document;
  std::string out;
  out.reserve(document.size());
  for (std::string_view rest = document; !rest.empty();) {
    const Utf8Character character = first_utf8_character(rest);
    // ASCII control characters occur only between values: JSON has none in its strings.
    if (character.code < 0x7f || is_printable(character)) {
      out.append(rest.substr(0, character.bytes));
    } else {
      const uint32_t code = character.well_formed ? character.code : 0xfffd;
      const auto unit = [&out](uint32_t utf16) {
        char text[8];
        std::snprintf(text, sizeof text, "\\u%04x", utf16 & 0xffffU);
        out += text;
      };
      if (code >= 0x10000) {
        unit(0xd800 + ((code - 0x10000) >> 10));
        unit(0xdc00 + ((code - 0x10000) & 0x3ffU));
      } else {
        unit(code);
      }
    }
    rest.remove_prefix(character.bytes);
  }
  return out;
}

std::string shortened(std::string text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  // Bytes 10xxxxxx of UTF-8 continue a character that began earlier.
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  text += kMore;
  return text;
}

}  // namespace ckpt::base
