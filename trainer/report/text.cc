#include "trainer/report/text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace moetrain::report {
namespace {

bool starts_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

}  // namespace

int display_width(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string clip(std::string_view text, int columns) {
  int width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!starts_code_point(text[i])) continue;
    if (width == std::max(columns, 0)) return std::string(text.substr(0, i));
    ++width;
  }
  return std::string(text);
}

void append_utf8(std::string& text, uint32_t code_point) {
  const auto put = [&text](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | (code_point >> 6));
    put(0x80U | (code_point & 0x3FU));
  } else {
    put(0xE0U | ((code_point >> 12) & 0x0FU));
    put(0x80U | ((code_point >> 6) & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  }
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string upper(value);
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return upper.find("UTF-8") != std::string::npos || upper.find("UTF8") != std::string::npos;
  }
  return false;
}

}  // namespace moetrain::report
