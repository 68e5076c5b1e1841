// The file of `--router-trace`.
#pragma once

#include <memory>
#include <string>

#include "trainer/model/router_trace.h"

namespace moetrain {

// Reads a routing trace of at most 1 GiB. Errors begin with the path and are kInvalidArgument:
// those of append_regular_file() and of RouterTrace::parse().
Result<std::shared_ptr<const RouterTrace>> load_router_trace(const std::string& path);

}  // namespace moetrain
