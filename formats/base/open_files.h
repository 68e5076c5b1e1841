// The limit of open files of the process (RLIMIT_NOFILE, ulimit -n).
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>

namespace ckpt::base {

// The current limits; nullopt: the system does not report them.
std::optional<rlimit> open_files_limit();

// Raises the soft limit to `wanted`, at most to the hard limit; never lowers it. Returns the new
// limits; nullopt: the system does not report them.
std::optional<rlimit> allow_open_files(rlim_t wanted);

// The end of a message about EMFILE or ENFILE: which limit was reached, its value, and how to raise
// it, in parentheses. Empty for other errors.
std::string open_files_hint(int error);

}  // namespace ckpt::base
