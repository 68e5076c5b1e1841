// Files that are removed when SIGINT, SIGTERM or SIGHUP ends the program. One thread only.
#pragma once

#include <string>

namespace ckptctl {

// The first call installs handlers for those of the three signals that have their default
// disposition. A handler unlinks the files and then lets the signal do what it does.
void unlink_on_signal(const std::string& path);
// Takes the path off the list; nothing happens if it is not there.
void keep_on_signal(const std::string& path);

}  // namespace ckptctl
