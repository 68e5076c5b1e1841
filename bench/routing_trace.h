// RoutingTrace: how many tokens every expert got, sample by sample; read from CSV
// (trainer/placement/routing_csv.h), gzip'ed or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "trainer/partial/experts.h"

namespace bench {

struct RoutingTrace {
  moetrain::ExpertGrid grid;
  // Of each layer, all samples together: those of all layers are what 64 bits count.
  int64_t assignments = 0;
  std::vector<std::vector<int64_t>> samples;  // [sample]: tokens, [grid.size()]
};

// kInvalidArgument, naming the line, for anything but that format, and where a layer has another
// number of assignments than the first one of its sample: one sample may have more than another
// (batches that grow). `origin` starts the message.
ckpt::Result<RoutingTrace> parse_routing_trace(std::string_view csv, std::string_view origin);

// From a file, which is unpacked if it is gzip'ed. At most 1 GiB of text. kCorrupt if it cannot be
// unpacked, or ends in the middle.
ckpt::Result<RoutingTrace> read_routing_trace(const std::string& path);

}  // namespace bench
