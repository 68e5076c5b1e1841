// The simulation's own definition of ckptd::left_out(), linked in the place of ckptd's.
#pragma once

#include <string_view>

namespace ckptd::testing {

// From here on this program's daemons do without it. False: there is no safeguard of this name.
bool leave_out(std::string_view safeguard);
// Nothing is left out any more.
void put_back();

}  // namespace ckptd::testing
