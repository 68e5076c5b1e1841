// The times of ranks as JSON (report.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/report/json_fields.h"
#include "trainer/report/report.h"

namespace moetrain::report {

nlohmann::ordered_json rank_times_json(const std::vector<RankTime>& times);

// Errors are recorded in `top`.
void read_rank_times(Fields& top, const std::string& origin, std::vector<RankTime>& times);

}  // namespace moetrain::report
