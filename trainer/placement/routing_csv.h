// RoutingCsv: a trace of routing, sample by sample. The one reader of this format:
//
//   iteration,layer,e0,e1,...        the first line
//   1,0,11779,6023,...               tokens of each expert; one line for each layer, in order
//   1,1,8120,9014,...
//   20,0,10102,7331,...              the next sample
//
// Iterations ascend, and every sample has the layers of the first one: a file that was cut off is
// refused. Lines may end in CRLF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/placement/text_lines.h"

namespace moetrain {

struct RoutingSample {
  uint64_t iteration = 0;
  std::vector<std::vector<uint64_t>> layers;  // [layer][expert]: tokens, each at most 2^48
};

class RoutingCsv {
 public:
  // Both outlive this; `origin`, usually a path, begins every message.
  RoutingCsv(std::string_view text, std::string_view origin) : lines_(text, origin) {}

  // The next sample; nothing after the last one. kInvalidArgument, naming the line, for anything
  // but the format above, and for a trace without a sample.
  ckpt::Result<std::optional<RoutingSample>> next();

  // Once there was a sample.
  uint32_t experts() const { return static_cast<uint32_t>(columns_.size()); }

  // kInvalidArgument about the sample that was read last.
  ckpt::Error refuse(const std::string& why) const { return lines_.refuse(why); }

 private:
  struct Row {
    uint64_t iteration = 0;
    uint64_t layer = 0;
    std::vector<uint64_t> tokens;
  };

  ckpt::Status read_header();
  ckpt::Result<std::optional<Row>> read_row();

  TextLines lines_;
  std::vector<std::string> columns_;  // of experts
  size_t layers_ = 0;                 // of the first sample
  std::optional<Row> row_;            // the first one of the next sample
  std::optional<uint64_t> iteration_;
};

}  // namespace moetrain
