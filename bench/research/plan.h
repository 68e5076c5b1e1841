// ckptbench plan: what placement policies are worth on a trace of routing counts, and how long they
// take to plan.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct PlanOptions {
  std::string loads_file;  // CSV, see routing_trace.h; none: a synthetic trace
  uint32_t ranks = 16;     // up to 20: joint recovery is counted, not estimated
  uint32_t slots_per_rank = 6;
  uint32_t replicas_min = 2;
  uint32_t every = 5;          // samples between plans
  std::vector<uint32_t> lags;  // samples from plan to use; none: 0, 10 and 18
  bool times = true;           // planning times at 16 to 1,024 ranks, too
};
ckpt::Result<nlohmann::json> bench_plan(const PlanOptions& options);

// The document in lines for people.
std::string plan_text(const nlohmann::json& document);

}  // namespace bench
