// Unit names that import makes of tensor names. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ckptctl {

// `name` as a unit name: each byte outside [A-Za-z0-9._-] becomes "%XX". A name too long for a unit
// is cut and ends with "%." and a hash of the whole name; the empty name becomes "%". Different
// names give different units, never a unit that exports treat specially.
std::string unit_name_of(std::string_view name);

}  // namespace ckptctl
