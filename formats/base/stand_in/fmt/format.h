// Found as <fmt/format.h> by the `gpu` preset alone, which looks for no library but CUDA's.
#pragma once

#include "formats/base/plain_format.h"

namespace fmt {

using ckpt::base::plain::format;
template <typename... Args>
using format_string = std::string_view;

}  // namespace fmt
