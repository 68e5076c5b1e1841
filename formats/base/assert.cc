#include "formats/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace ckpt::base {

void assert_failed(const char* expression, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s%s%.*s\n", file, line, expression,
               message.empty() ? "" : ": ", static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace ckpt::base
