#include "formats/base/printable.h"

#include <algorithm>

namespace ckpt::base {

std::string printable(std::string_view text) {
  constexpr size_t kShown = 128;
  std::string out(text.substr(0, kShown));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  if (text.size() > kShown) out += "...";
  return out;
}

}  // namespace ckpt::base
