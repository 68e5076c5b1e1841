#include "bench/research/routing_trace.h"

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
constexpr size_t kSamplesMax = size_t{1} << 20;  // far more than any trace has

// Number of tokens of the first layer. Every layer of the sample must have the same number.
Result<int64_t> tokens_of(const RoutingCsv& csv, const std::vector<uint64_t>& layer) {
  int64_t sum = 0;
  for (const uint64_t tokens : layer) {
    if (__builtin_add_overflow(sum, tokens, &sum)) return csv.refuse("too many tokens in a layer");
  }
  return sum;
}

// True if the assignments of all layers together fit 64 bits: no sum of tokens can wrap around.
bool counts(const RoutingTrace& trace) {
  int64_t all = 0;
  return !__builtin_mul_overflow(trace.assignments, int64_t{trace.grid.layers}, &all);
}

// True if the file ended in the middle. zlib returns the data of a truncated file and then an end
// of file, as for a whole file: only its error code tells.
bool was_cut(gzFile file) {
  int error = Z_OK;
  gzerror(file, &error);
  return error == Z_BUF_ERROR;
}

// Reads a whole file and decompresses it.
Result<std::string> read_unpacked(const std::string& path) {
  // gzopen() reads plain files, too.
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
  if (was_cut(file.get())) return make_error(ErrorCode::kCorrupt, "{}: ends in the middle", path);
  if (read < 0) return make_error(ErrorCode::kCorrupt, "{}: cannot be read or unpacked", path);
  return text;
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
    }
    CKPT_ASSIGN(const int64_t tokens, tokens_of(csv, sample->layers.front()));
    if (__builtin_add_overflow(trace.assignments, tokens, &trace.assignments) || !counts(trace)) {
      return csv.refuse("too many tokens in all samples together");
    }
    std::vector<int64_t>& of_sample = trace.samples.emplace_back();
    of_sample.reserve(trace.grid.size());
    for (const auto& layer : sample->layers) {
      of_sample.insert(of_sample.end(), layer.begin(), layer.end());
    }
    const Status sums = moetrain::check_routing(trace.grid, of_sample, tokens);
    if (!sums.ok()) {
      return csv.refuse(fmt::format("iteration {}: {}", sample->iteration, sums.error().message));
    }
  }
}

Result<RoutingTrace> read_routing_trace(const std::string& path) {
  CKPT_ASSIGN(const std::string text, read_unpacked(path));
  return parse_routing_trace(text, path);
}

}  // namespace bench
