// Confirmation by the user at the terminal, before data is removed for good.
#pragma once

#include <string>

namespace ckptctl {

// True if a user can answer: stdin and stderr are terminals.
bool can_ask();
// Writes the question to stderr and reads a line from stdin. True: "y" or "yes".
bool confirm(const std::string& question);

}  // namespace ckptctl
