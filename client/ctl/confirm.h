// Questions to the person at the terminal, before something goes that cannot be brought back.
#pragma once

#include <string>

namespace ckptctl {

// Is there somebody to ask: are stdin and stderr terminals?
bool can_ask();
// Writes the question to stderr and reads a line from stdin. True: "y" or "yes".
bool confirm(const std::string& question);

}  // namespace ckptctl
