// ckptbench relayout: how well plans of every step follow the load where experts are fully sharded,
// and how long these plans take.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/base/result.h"

namespace bench {

struct RelayoutOptions {
  std::string loads_file;     // CSV, see routing_trace.h; none: Zipf loads only
  uint32_t layers_every = 1;  // 2: every other layer of the file
  bool bounded_only = false;  // the rows that have a bound, nothing else
  bool times = true;          // planning times at 64 and 1,024 ranks, too
};

ckpt::Result<nlohmann::json> bench_relayout(const RelayoutOptions& options);

// The document in lines for people.
std::string relayout_text(const nlohmann::json& document);

}  // namespace bench
