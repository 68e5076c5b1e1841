// Dispatch: brings every token to the experts it chose and the results back, by an unpadded
// all-to-all. Dropless: no capacity, no padding; what is routed is sent.
//
// Orders are total, so results do not depend on timing:
//   send order    by (destination rank, slot, token): how a rank lays out its own assignments
//   arrival order by (source rank, slot, token): how they lie after the all-to-all
//   expert order  by (slot, source rank, token): what expert_gemm reads
// With sequences dealt to ranks in order, (source rank, token) is the order of the global batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/device/tensor.h"
#include "trainer/parallel/comm.h"
#include "trainer/parallel/expert_placement.h"

namespace moetrain {

// The routes of one layer for one micro-batch, and the memory for moving rows along them: routes
// are planned on the host, rows stay on the device. Reused micro-batch after micro-batch. All calls
// are collectives of the placement's group; after a failed one only plan() may be called.
class Dispatch {
 public:
  explicit Dispatch(Device& device) : device_(device) {}

  // choice: [tokens, top_k], experts of the layer, distinct per token. Exchanges the counts.
  Status plan(Comm& comm, const ExpertPlacement& placement, uint32_t layer, uint32_t top_k,
              std::span<const int32_t> choice);

  // Row of assignment (token, k) in send order; kInt64 [tokens, top_k]. One-to-one onto
  // [0, sent_rows()).
  const Tensor& positions() const { return device_positions_; }
  int64_t sent_rows() const { return static_cast<int64_t>(positions_.size()); }
  // Rows for each slot of this rank, from all ranks; and their sum.
  std::span<const int64_t> slot_rows() const { return slot_rows_; }
  int64_t received_rows() const { return static_cast<int64_t>(expert_order_.size()); }

  // rows [sent_rows, width] in send order -> expert_rows [received_rows, width] in expert order.
  Status to_experts(Comm& comm, int64_t width, const Tensor& rows, Tensor& expert_rows);
  // The way back: expert_rows -> rows.
  Status to_tokens(Comm& comm, int64_t width, const Tensor& expert_rows, Tensor& rows);

 private:
  void lay_out_sends(const ExpertPlacement& placement, uint32_t layer, uint32_t top_k,
                     std::span<const int32_t> choice, std::vector<int64_t>& slot_counts);
  void lay_out_arrivals(std::span<const int64_t> counts, size_t slots);

  Device& device_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> send_rows_;     // per destination rank
  std::vector<int64_t> receive_rows_;  // per source rank
  std::vector<int64_t> slot_rows_;
  std::vector<int64_t> expert_order_;  // row in expert order of each row in arrival order
  std::vector<int64_t> send_counts_;   // elements
  std::vector<int64_t> receive_counts_;
  Tensor device_positions_;
  Tensor device_expert_order_;
  Tensor arrivals_;  // rows in arrival order
};

}  // namespace moetrain
