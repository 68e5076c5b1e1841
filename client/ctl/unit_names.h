// Unit names that import makes of tensor names. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ckptctl {

// `name` as a unit name: each byte outside [A-Za-z0-9._-] becomes "%XX". A name that gets too long
// for a unit is cut and ends with "%." and a hash of all of it; the empty name becomes "%". Names
// that differ give units that differ, and none gives one of the units that exports treat apart.
std::string unit_name_of(std::string_view name);

}  // namespace ckptctl
