// The exchange of tokens and experts as JSON (report.h).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "trainer/report/json_fields.h"
#include "trainer/report/report.h"

namespace moetrain::report {

nlohmann::ordered_json exchange_json(const std::optional<ExpertExchange>& exchange);

// Errors are recorded in `top`.
void read_exchange(Fields& top, std::optional<ExpertExchange>& exchange);

}  // namespace moetrain::report
