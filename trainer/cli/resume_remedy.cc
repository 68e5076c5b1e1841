#include "trainer/cli/resume_remedy.h"

namespace moetrain {

std::string resume_remedy(ckpt::ErrorDetail detail) {
  constexpr const char* kBegin = "; leave --resume out to begin it";
  if (detail == ckpt::ErrorDetail::kNoCommit) return kBegin;
  if (detail != ckpt::ErrorDetail::kNoSuchRun) return {};
  return std::string(kBegin) + ", or name another with --run: `ckptctl runs` lists them";
}

std::string read_remedy(ckpt::ErrorDetail detail) {
  return detail == ckpt::ErrorDetail::kNoSuchRun ? "; `ckptctl runs` lists them" : "";
}

}  // namespace moetrain
