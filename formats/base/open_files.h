// How many files the process may have open (RLIMIT_NOFILE, ulimit -n).
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>

namespace ckpt::base {

// The limits as they are; nullopt: the system does not say.
std::optional<rlimit> open_files_limit();

// Raises the soft limit to `wanted`, and no further than the hard limit; a higher one stays.
// Returns the limits after that; nullopt: the system does not say.
std::optional<rlimit> allow_open_files(rlim_t wanted);

// The end of a message about EMFILE or ENFILE: whose limit it is, how high, and how to raise it, in
// parentheses. Empty for other errors.
std::string open_files_hint(int error);

}  // namespace ckpt::base
