// The simulation's own definition of ckptd::left_out(), linked in the place of ckptd's.
#pragma once

#include <string_view>

namespace ckptd::testing {

// From now on this program's daemons lack the safeguard. False: no safeguard has this name.
bool leave_out(std::string_view safeguard);
// Restores all safeguards.
void put_back();

}  // namespace ckptd::testing
