// LoadWindow: the routing counts of the last steps, which plan the steps to come. A value; pure.
//
// The plan of step s is made from the counts up to step s - 2: the counts of step s - 1 are known
// only when step s begins, which is too late to plan beside the training. The plan sums five steps,
// as LAER-MoE does. Seven are kept: after a loss of ranks step s - 1 is done again, and its plan
// needs the counts of steps s - 7 to s - 3.
//
// Encoded (checkpoint, handover): 28 bytes for each layer and expert, in this order; seven uint32
// little-endian, the oldest step first. A count beyond UINT32_MAX is UINT32_MAX. A step of which
// nothing is known is zero for all experts of all layers; only the oldest steps may be unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace moetrain {

// [layer][expert]: tokens. What a plan is made from; empty: nothing is known.
using LayerLoads = std::vector<std::vector<uint64_t>>;

class LoadWindow {
 public:
  static constexpr uint32_t kStepsKept = 7;
  static constexpr uint32_t kStepsSummed = 5;
  static constexpr size_t kBytesPerExpert = kStepsKept * sizeof(uint32_t);

  // Knows nothing of the steps up to `last_step`.
  LoadWindow(uint32_t layers, uint32_t experts, uint64_t last_step = 0)
      : layers_(layers), experts_(experts), last_step_(last_step) {}

  uint32_t layers() const { return layers_; }
  uint32_t experts() const { return experts_; }
  uint64_t last_step() const { return last_step_; }
  uint32_t known_steps() const { return static_cast<uint32_t>(steps_.size()); }

  // Step last_step() + 1 is done. routed: tokens of all ranks to each expert, >= 0,
  // [layers * experts]. Counts saturate here, so that a restored window plans as this one does.
  void record(std::span<const int64_t> routed);

  // True if sum(step) is what it would be if every step since step 1 were kept.
  bool covers(uint64_t step) const;
  // The counts of the known steps among step - 4 .. step. Empty if none of them is known.
  LayerLoads sum(uint64_t step) const;

  std::vector<std::byte> encode() const;
  // kCorrupt unless the bytes are a window of so many layers and experts: the size, unknown steps
  // only at the old end and not before step 1, and in each step as many tokens in every layer, as
  // far as no count is saturated.
  static ckpt::Result<LoadWindow> decode(ckpt::ByteView bytes, uint32_t layers, uint32_t experts,
                                         uint64_t last_step);

  bool operator==(const LoadWindow&) const = default;

 private:
  size_t size() const { return size_t{layers_} * experts_; }

  uint32_t layers_;
  uint32_t experts_;
  uint64_t last_step_;
  std::vector<std::vector<uint32_t>> steps_;  // [known step][layer, expert]: the newest last
};

}  // namespace moetrain
