// Changes of the members, in the report's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/report/json_fields.h"
#include "trainer/report/report.h"

namespace moetrain::report {

nlohmann::ordered_json changes_json(const std::vector<MemberChange>& changes);

// Errors are recorded in `top`.
void read_changes(Fields& top, const std::string& origin, std::vector<MemberChange>& changes);

}  // namespace moetrain::report
