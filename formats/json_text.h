// JSON texts from outside. They are parsed by a loop, but the values that come of it are copied and
// printed by recursion: a megabyte of brackets would end the stack. So a text is walked through
// before a value is made of it.
#pragma once

#include <string_view>

#include "formats/base/result.h"

namespace ckpt {

// What people and frameworks write by hand nests a dozen deep.
inline constexpr size_t kJsonDepthMax = 64;

// Is this one JSON value whose arrays and objects nest at most `depth_max` deep? kInvalidArgument
// says in a few words what it is instead: "not JSON", "nested more than 64 deep".
Status check_json(std::string_view text, size_t depth_max = kJsonDepthMax);

}  // namespace ckpt
