#include "formats/base/address_space.h"

#include <sys/resource.h>

#include "formats/base/parse.h"

namespace ckpt::base {

std::optional<uint64_t> address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string address_space_hint() {
  const auto limit = address_space_limit();
  if (!limit) return "";
  return fmt::format("; its address space is limited to {} (ulimit -v): raise the limit",
                     format_size(*limit));
}

}  // namespace ckpt::base
