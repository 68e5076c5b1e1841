// Answers about the daemon and about changes of history, as text for users: one function for each
// verb, as in print.h.
#pragma once

#include <string>

#include "client/ctl/link.h"

namespace ckptctl {

std::string print_status(const Json& document);
std::string print_keep(const Json& document);
std::string print_gc(const Json& document);
std::string print_pin(const Json& document);
std::string print_tag(const Json& document);
std::string print_wait(const Json& document);
std::string print_rebuild(const Json& document);

}  // namespace ckptctl
