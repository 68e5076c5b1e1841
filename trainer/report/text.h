// Text for terminals: widths, clipping, UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moetrain::report {

// Terminal columns of UTF-8 text: one per code point (nothing here uses wide characters).
int display_width(std::string_view text);

// At most `columns` columns of it, never half a code point.
std::string clip(std::string_view text, int columns);

void append_utf8(std::string& text, uint32_t code_point);  // up to U+FFFF

// True if LC_ALL, LC_CTYPE or LANG (the first that is set) names UTF-8.
bool locale_is_utf8();

}  // namespace moetrain::report
