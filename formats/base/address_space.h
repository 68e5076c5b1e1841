// The limit of a process's address space (RLIMIT_AS, ulimit -v).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ckpt::base {

// Bytes; nullopt: there is no limit.
std::optional<uint64_t> address_space_limit();

// The end of a message about a lack of memory: the limit, and what to do. Empty without a limit.
std::string address_space_hint();

}  // namespace ckpt::base
