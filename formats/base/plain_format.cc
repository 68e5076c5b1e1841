#include "formats/base/plain_format.h"

namespace ckpt::base::plain {

bool next_field(std::string& out, std::string_view& format, std::string_view* spec) {
  while (!format.empty()) {
    const char first = format.front();
    const bool doubled = format.size() > 1 && format[1] == first;
    format.remove_prefix(1);
    if ((first == '{' || first == '}') && doubled) {
      out += first;
      format.remove_prefix(1);
      continue;
    }
    if (first != '{') {
      out += first;
      continue;
    }
    const size_t end = format.find('}');
    if (end == std::string_view::npos) {  // never closed: it is text
      out += first;
      continue;
    }
    *spec = format.substr(0, end);
    if (!spec->empty() && spec->front() == ':') spec->remove_prefix(1);
    format.remove_prefix(end + 1);
    return true;
  }
  return false;
}

}  // namespace ckpt::base::plain
