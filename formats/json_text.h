// Checks JSON texts from outside. The parser is a loop, but copying and printing the parsed values
// recurses: a megabyte of brackets would overflow the stack. So the nesting depth of a text is
// checked before values are built.
#pragma once

#include <string_view>

#include "formats/base/result.h"

namespace ckpt {

// Handwritten and framework-written JSON nests about a dozen deep.
inline constexpr size_t kJsonDepthMax = 64;

// Checks for one JSON value whose arrays and objects nest at most `depth_max` deep.
// kInvalidArgument has the reason in a few words: "not JSON", "nested more than 64 deep".
Status check_json(std::string_view text, size_t depth_max = kJsonDepthMax);

}  // namespace ckpt
