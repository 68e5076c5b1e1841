// Files that are removed when a signal of a terminal, a batch system or a limit ends the program.
// One thread only.
#pragma once

#include <string>

namespace ckptctl {

// The first call installs handlers for each of these signals that has its default disposition.
// A handler unlinks the files and then lets the signal take its default effect.
void unlink_on_signal(const std::string& path);
// Removes the path from the list; does nothing if it is not on the list.
void keep_on_signal(const std::string& path);

}  // namespace ckptctl
