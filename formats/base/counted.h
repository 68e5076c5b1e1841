// Counts in sentences: "1 commit", "2 commits".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt::base {

// counted(2, "commit") is "2 commits". A plural that is not `one` with an s is given in `many`.
inline std::string counted(uint64_t count, std::string_view one, std::string_view many = {}) {
  if (count == 1) return fmt::format("1 {}", one);
  if (many.empty()) return fmt::format("{} {}s", count, one);
  return fmt::format("{} {}", count, many);
}

}  // namespace ckpt::base
