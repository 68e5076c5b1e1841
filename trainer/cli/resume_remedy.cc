#include "trainer/cli/resume_remedy.h"

namespace moetrain {

std::string resume_remedy(std::string_view message) {
  constexpr const char* kBegin = "; leave --resume out to begin it";
  if (message.ends_with(": it has no commit yet")) return kBegin;
  if (!message.ends_with(": no such run")) return {};
  return std::string(kBegin) + ", or name another with --run: `ckptctl runs` lists them";
}

}  // namespace moetrain
