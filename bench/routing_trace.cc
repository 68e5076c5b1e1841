#include "bench/routing_trace.h"

#include <zlib.h>

#include <memory>
#include <utility>

#include "trainer/partial/plt.h"
#include "trainer/placement/routing_csv.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using moetrain::RoutingCsv;

namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;
// Far more than any trace has. The product of all bounds and of the sets of dead ranks could wrap.
constexpr size_t kSamplesMax = size_t{1} << 20;
constexpr int64_t kAssignmentsMax = int64_t{1} << 26;

// The tokens of the first layer: every layer must have as many.
Result<int64_t> tokens_of(const RoutingCsv& csv, const std::vector<uint64_t>& layer) {
  int64_t sum = 0;
  for (const uint64_t tokens : layer) {
    if (tokens > static_cast<uint64_t>(kAssignmentsMax - sum)) {
      return csv.refuse("too many tokens in a layer");
    }
    sum += static_cast<int64_t>(tokens);
  }
  return sum;
}

}  // namespace

Result<RoutingTrace> parse_routing_trace(std::string_view text, std::string_view origin) {
  RoutingCsv csv(text, origin);
  RoutingTrace trace;
  for (;;) {
    CKPT_ASSIGN(const auto sample, csv.next());
    if (!sample) return trace;
    if (trace.samples.size() == kSamplesMax) return csv.refuse("too many samples");
    if (trace.samples.empty()) {
      trace.grid = {static_cast<uint32_t>(sample->layers.size()), csv.experts()};
      CKPT_ASSIGN(trace.assignments, tokens_of(csv, sample->layers.front()));
    }
    std::vector<int64_t>& counts = trace.samples.emplace_back();
    counts.reserve(trace.grid.size());
    for (const auto& layer : sample->layers)
      counts.insert(counts.end(), layer.begin(), layer.end());
    const Status sums = moetrain::check_routing(trace.grid, counts, trace.assignments);
    if (!sums.ok()) {
      return csv.refuse(fmt::format("iteration {}: {}", sample->iteration, sums.error().message));
    }
  }
}

Result<RoutingTrace> read_routing_trace(const std::string& path) {
  // zlib reads plain files, too.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) return make_error(ErrorCode::kNotFound, "{}: cannot be opened", path);
  std::string text;
  std::vector<char> block(1 << 20);
  int read = 0;
  while ((read = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()))) > 0) {
    text.append(block.data(), static_cast<size_t>(read));
    if (text.size() > kTextBytesMax) {
      return make_error(ErrorCode::kInvalidArgument, "{}: more than {} bytes of text", path,
                        kTextBytesMax);
    }
  }
  if (read < 0) return make_error(ErrorCode::kCorrupt, "{}: cannot be read or unpacked", path);
  return parse_routing_trace(text, path);
}

}  // namespace bench
