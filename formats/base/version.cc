#include "formats/base/version.h"

#include <fmt/format.h>

namespace ckpt::base {

std::string version_text(std::string_view program) {
  return fmt::format("{} {}", program, CKPT_PROJECT_VERSION);
}

}  // namespace ckpt::base
