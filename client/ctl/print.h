// The answers as text for users. Each function takes the document of its verb
// (docs/reference/queries.md) and returns the text to print.
#pragma once

#include <string>

#include "client/ctl/link.h"

namespace ckptctl {

std::string print_runs(const Json& document);
std::string print_log(const Json& document);
std::string print_alarms(const Json& document);
std::string print_show(const Json& document);
std::string print_unit(const Json& document);
std::string print_experts(const Json& document);
std::string print_diff(const Json& document);
std::string print_verify(const Json& document);
std::string print_scrub(const Json& document);
std::string print_restore_plan(const Json& document);
std::string print_prune(const Json& document);
std::string print_grants(const Json& document);
std::string print_export(const Json& document);
std::string print_import(const Json& document);

}  // namespace ckptctl
