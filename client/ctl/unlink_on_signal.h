// Files that are removed when SIGINT, SIGTERM or SIGHUP ends the program. One thread only.
#pragma once

#include <string>

namespace ckptctl {

// The first call installs handlers for each of the three signals that has its default disposition.
// A handler unlinks the files and then lets the signal take its default effect.
void unlink_on_signal(const std::string& path);
// Removes the path from the list; does nothing if it is not on the list.
void keep_on_signal(const std::string& path);

}  // namespace ckptctl
