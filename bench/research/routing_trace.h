// RoutingTrace: number of tokens per expert in each sample. Read from CSV
// (trainer/placement/routing_csv.h), gzip'ed or plain.
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
  // Per layer, summed over all samples. The sum over all layers fits 64 bits, too.
  int64_t assignments = 0;
  std::vector<std::vector<int64_t>> samples;  // [sample]: tokens, [grid.size()]
};

// kInvalidArgument, naming the line, for any other format, and if the layers of a sample differ in
// their number of assignments. Samples may differ from each other (batches that grow). `origin`
// starts the message.
ckpt::Result<RoutingTrace> parse_routing_trace(std::string_view csv, std::string_view origin);

// Reads a file, gzip'ed or plain, of at most 1 GiB of text. kCorrupt if the file cannot be
// decompressed, or ends in the middle.
ckpt::Result<RoutingTrace> read_routing_trace(const std::string& path);

}  // namespace bench
