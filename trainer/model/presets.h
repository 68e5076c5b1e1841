// Model sizes by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/config.h"

namespace moetrain {

// "tiny": for demos and tests on a laptop's cores. "small": minutes instead of seconds, a real
// loss curve. Names in ascending size: preset_names().
std::optional<ModelConfig> preset(std::string_view name);
std::vector<std::string> preset_names();

}  // namespace moetrain
