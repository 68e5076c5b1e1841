// Damage found by scrub and verify, below the tables of `log` and `show`. Private to this folder.
#pragma once

#include <string>

#include "client/ctl/link.h"

namespace ckptctl {

// The level of a commit in `log`, with the number of its damaged units.
std::string level_of_commit(const Json& commit);
// The level of a unit in `show`: "damaged" if damage is known.
std::string level_of_unit(const Json& unit);

// A line for each damaged commit or unit, at most 16, and the remedy; empty: nothing is damaged.
std::string log_damage_lines(const Json& log);
std::string show_damage_lines(const Json& view);

}  // namespace ckptctl
