#include "bench/routing_trace.h"

#include <zlib.h>

#include <charconv>
#include <memory>
#include <numeric>
#include <optional>

#include "trainer/partial/plt.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;
constexpr uint32_t kExpertsMax = 1u << 16;
constexpr uint32_t kLayersMax = 1u << 16;
// Far more than any trace has. The product of all bounds and of the sets of dead ranks could wrap.
constexpr size_t kSamplesMax = size_t{1} << 20;
constexpr int64_t kAssignmentsMax = int64_t{1} << 26;

std::string_view take_until(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

class Parser {
 public:
  explicit Parser(std::string_view origin) : origin_(origin) {}

  Status header(std::string_view line) {
    if (take_until(line, ',') != "iteration" || take_until(line, ',') != "layer") {
      return refuse("must begin with iteration,layer");
    }
    while (!line.empty()) {
      if (take_until(line, ',') != fmt::format("e{}", trace_.grid.experts)) {
        return refuse(fmt::format("column e{} is missing", trace_.grid.experts));
      }
      if (++trace_.grid.experts > kExpertsMax) return refuse("too many experts");
    }
    return trace_.grid.experts > 0 ? Status() : refuse("no experts");
  }

  Status row(std::string_view line) {
    ++line_;
    std::vector<int64_t> values;
    while (!line.empty()) {
      const auto value = number(take_until(line, ','));
      if (!value) return refuse("has a field that is no count");
      values.push_back(*value);
      if (values.size() > size_t{trace_.grid.experts} + 2) break;
    }
    if (values.size() != size_t{trace_.grid.experts} + 2) {
      return refuse(fmt::format("must have {} fields", trace_.grid.experts + 2));
    }
    CKPT_TRY(begin_layer(values[0], values[1]));
    auto& sample = trace_.samples.back();
    sample.insert(sample.end(), values.begin() + 2, values.end());
    return {};
  }

  Result<RoutingTrace> finish() {
    CKPT_TRY(end_sample());
    if (trace_.samples.empty()) return refuse("no samples").error();
    return std::move(trace_);
  }

 private:
  Status refuse(const std::string& why) const {
    return make_error(ErrorCode::kInvalidArgument, "{} line {}: {}", origin_, line_, why);
  }

  Status begin_layer(int64_t iteration, int64_t layer) {
    if (layer == 0) {
      CKPT_TRY(end_sample());
      if (!trace_.samples.empty() && iteration < iteration_) return refuse("an earlier iteration");
      iteration_ = iteration;
      if (trace_.samples.size() == kSamplesMax) return refuse("too many samples");
      trace_.samples.emplace_back();
      next_layer_ = 0;
    }
    if (trace_.samples.empty() || layer != next_layer_ || iteration != iteration_) {
      return refuse(fmt::format("iteration {} layer {} is not the next one", iteration, layer));
    }
    if (++next_layer_ > kLayersMax) return refuse("too many layers");
    return {};
  }

  Status end_sample() {
    if (trace_.samples.empty()) return {};
    const auto& sample = trace_.samples.back();
    if (trace_.samples.size() == 1) {
      trace_.grid.layers = next_layer_;
      for (uint32_t i = 0; i < trace_.grid.experts; ++i) {
        if (sample[i] > kAssignmentsMax - trace_.assignments) return refuse("too many tokens");
        trace_.assignments += sample[i];
      }
    }
    if (next_layer_ != trace_.grid.layers) {
      return refuse(fmt::format("the sample before has {} layers, the first one {}", next_layer_,
                                trace_.grid.layers));
    }
    const Status sums = moetrain::check_routing(trace_.grid, sample, trace_.assignments);
    return sums.ok() ? sums : refuse("the sample before: " + sums.error().message);
  }

  const std::string_view origin_;
  RoutingTrace trace_;
  uint64_t line_ = 1;
  int64_t iteration_ = 0;
  uint32_t next_layer_ = 0;
};

}  // namespace

Result<RoutingTrace> parse_routing_trace(std::string_view csv, std::string_view origin) {
  Parser parser(origin);
  CKPT_TRY(parser.header(take_until(csv, '\n')));
  while (!csv.empty()) CKPT_TRY(parser.row(take_until(csv, '\n')));
  return parser.finish();
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
