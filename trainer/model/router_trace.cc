#include "trainer/model/router_trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "formats/base/assert.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32c.h"
#include "trainer/placement/routing_csv.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

// Tokens assumed for an expert without any: low enough that it is hardly ever chosen, and finite:
// infinite logits would make the gate's softmax NaN if fewer experts than top_k have tokens.
constexpr double kTokensOfNone = 1e-3;
constexpr std::string_view kGzipMagic = "\x1f\x8b";

void append_logits(const std::vector<uint64_t>& tokens, std::vector<float>& logits) {
  const auto count = [](uint64_t of) { return of == 0 ? kTokensOfNone : static_cast<double>(of); };
  double total = 0;
  for (const uint64_t of_expert : tokens) total += count(of_expert);
  for (const uint64_t of_expert : tokens) {
    logits.push_back(static_cast<float>(std::log(count(of_expert) / total)));
  }
}

}  // namespace

Result<RouterTrace> RouterTrace::parse(std::string_view text, std::string_view origin) {
  if (text.starts_with(kGzipMagic)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: is compressed by gzip; unpack it first, as by gunzip --keep", origin);
  }
  RouterTrace trace;
  trace.origin_ = origin;
  trace.crc32c_ = ckpt::base::crc32c(ckpt::as_bytes(text));
  RoutingCsv csv(text, origin);
  for (;;) {
    CKPT_ASSIGN(const auto sample, csv.next());
    if (!sample) break;
    trace.experts_ = csv.experts();
    trace.layers_ = static_cast<uint32_t>(sample->layers.size());
    for (const auto& tokens : sample->layers) append_logits(tokens, trace.logits_);
  }
  return trace;
}

Status RouterTrace::check_fits(const ModelConfig& config) const {
  if (experts_ != config.experts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: has {} experts in a layer, the model has {} (--experts)", origin_,
                      experts_, config.experts);
  }
  if (layers_ < config.layers) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: has {} layer{}, the model has {} (--layers)", origin_, layers_,
                      layers_ == 1 ? "" : "s", config.layers);
  }
  return {};
}

std::span<const float> RouterTrace::logits(uint64_t sample, uint32_t layer) const {
  CKPT_ASSERT(sample < samples() && layer < layers_);
  return std::span(logits_).subspan((sample * layers_ + layer) * experts_, experts_);
}

TracePopularity::TracePopularity(std::shared_ptr<const RouterTrace> trace, uint64_t hold)
    : trace_(std::move(trace)), hold_(hold) {
  CKPT_ASSERT(hold_ > 0);
}

std::vector<float> TracePopularity::logits(uint32_t layer, uint64_t step) const {
  const std::span<const float> of_layer =
      trace_->logits(std::min(step / hold_, trace_->samples() - 1), layer);
  return {of_layer.begin(), of_layer.end()};
}

}  // namespace moetrain
