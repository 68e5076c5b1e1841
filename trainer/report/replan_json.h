// Replans of a report as JSON (report.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/report/json_fields.h"
#include "trainer/report/report.h"

namespace moetrain::report {

nlohmann::ordered_json replans_json(const std::vector<Replan>& replans);

// Errors are recorded in `top`. A result can be drawn: every rank's experts have a load, every
// expert has a rank, and there are as many ranks before as after.
void read_replans(Fields& top, const std::string& origin, std::vector<Replan>& replans);

}  // namespace moetrain::report
