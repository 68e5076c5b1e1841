// The version of all programs, which are built and installed together.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::base {

// "ckptctl 0.1.0", what --version prints.
std::string version_text(std::string_view program);

}  // namespace ckpt::base
