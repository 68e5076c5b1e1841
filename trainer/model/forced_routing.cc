#include "trainer/model/forced_routing.h"

#include <cmath>
#include <utility>

#include "formats/base/assert.h"
#include "trainer/model/philox.h"
#include "trainer/model/zipf_popularity.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr uint64_t kNoiseKey = 0x736b6577;  // any number

Status check_trace(const ModelConfig& config, const RouterTrace* trace) {
  if (!config.follows_trace()) {
    if (trace == nullptr) return {};
    return make_error(ErrorCode::kInvalidArgument, "{}: the run follows no routing trace",
                      trace->origin());
  }
  if (trace == nullptr) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the run follows a routing trace with CRC32C {:08x}: name its file by "
                      "--router-trace",
                      config.router_trace_crc32c);
  }
  if (trace->crc32c() != config.router_trace_crc32c) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: has CRC32C {:08x}, the run follows a routing trace with {:08x}",
                      trace->origin(), trace->crc32c(), config.router_trace_crc32c);
  }
  return trace->check_fits(config);
}

}  // namespace

Result<ForcedRouting> ForcedRouting::make(const ModelConfig& config,
                                          std::shared_ptr<const RouterTrace> trace) {
  CKPT_TRY(check_trace(config, trace.get()));
  ForcedRouting routing(config);
  if (trace) {
    routing.popularity_ =
        std::make_unique<TracePopularity>(std::move(trace), config.router_trace_hold);
  } else if (config.router_skew > 0) {
    routing.popularity_ = std::make_unique<ZipfPopularity>(config);
  }
  return routing;
}

std::vector<float> ForcedRouting::logits(uint32_t layer, uint64_t step,
                                         std::span<const int32_t> tokens) const {
  CKPT_ASSERT(active());
  const std::vector<float> popularity = popularity_->logits(layer, step);
  std::vector<float> logits(tokens.size() * experts_);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint64_t place = (uint64_t{static_cast<uint32_t>(tokens[i])} << 32) | i % seq_len_;
    for (uint32_t expert = 0; expert < experts_; ++expert) {
      const double uniform = unit_uniform(philox(kNoiseKey + layer, place, expert)[0]);
      logits[i * experts_ + expert] =
          popularity[expert] - static_cast<float>(std::log(-std::log(uniform)));
    }
  }
  return logits;
}

}  // namespace moetrain
