// RouterTrace: recorded token counts of a real run, which routing is forced to follow
// (`--router-trace FILE --router-trace-hold STEPS`).
//
// Layer l of the model follows layer l of the trace. An expert with t of its layer's T tokens gets
// ln(t / T); an expert without tokens counts as one with a thousandth of a token, and a layer
// without tokens is even. Immutable; threads may share it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/model/expert_popularity.h"

namespace moetrain {

class RouterTrace {
 public:
  // text: in the format of placement/routing_csv.h, plain. `origin`, usually a path, begins every
  // message, also those about a trace that does not fit. kInvalidArgument, naming the line, for
  // anything else; compressed text is named as such.
  static Result<RouterTrace> parse(std::string_view text, std::string_view origin);

  const std::string& origin() const { return origin_; }
  // CRC of the text: shows whether a run continues with its first trace.
  uint32_t crc32c() const { return crc32c_; }
  uint32_t experts() const { return experts_; }
  uint32_t layers() const { return layers_; }
  uint64_t samples() const { return logits_.size() / (uint64_t{layers_} * experts_); }

  // kInvalidArgument unless the trace has the model's number of experts and at least its layers.
  Status check_fits(const ModelConfig& config) const;

  // [experts], of one layer of one sample.
  std::span<const float> logits(uint64_t sample, uint32_t layer) const;

 private:
  std::string origin_;
  uint32_t crc32c_ = 0;
  uint32_t experts_ = 0;
  uint32_t layers_ = 0;
  std::vector<float> logits_;  // [sample][layer][expert]
};

// The popularity of step s is that of sample s / hold; the last sample stays.
class TracePopularity final : public ExpertPopularity {
 public:
  // hold: at least 1.
  TracePopularity(std::shared_ptr<const RouterTrace> trace, uint64_t hold);

  std::vector<float> logits(uint32_t layer, uint64_t step) const override;

 private:
  std::shared_ptr<const RouterTrace> trace_;
  uint64_t hold_;
};

}  // namespace moetrain
