// ckptbench plt: expected lost tokens of the selectors on a routing trace.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct PltOptions {
  std::string trace;           // CSV, see routing_trace.h
  std::vector<uint32_t> ks;    // experts of each layer per snapshot; none: 1, 2 and 4
  uint32_t interval = 1;       // samples between snapshots
  uint32_t staleness_max = 0;  // snapshots; 0: the default of each K
  uint32_t ranks = 16;
  uint32_t slots_per_rank = 6;
  uint32_t replicas_min = 2;
  uint32_t replan = 10;     // samples between placements
  uint32_t dead_max = 0;    // largest number of lost ranks; 0: 4, or all if there are fewer
  bool placements = false;  // print the placements, too
};
ckpt::Result<nlohmann::json> bench_plt(const PltOptions& options);

// The document in lines for people.
std::string plt_text(const nlohmann::json& document);

}  // namespace bench
