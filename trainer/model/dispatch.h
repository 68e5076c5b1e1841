// Dispatch: brings every token to the experts it chose and the results back, by an unpadded
// all-to-all. Dropless: no capacity, no padding; what is routed is sent.
//
// Replicas share an expert's tokens evenly, within each node if the placement has nodes, and a
// rank's own replica takes its tokens first (trainer/placement/token_shares.h). A rank's tokens for
// an expert go to the replicas in order: the first tokens to the lowest rank that gets some, and so
// on.
//
// Orders are total, so results do not depend on timing:
//   send order    by (destination rank, expert, token): how a rank lays out its own assignments
//   arrival order by (source rank, expert, token): how they lie after the all-to-all
//   expert order  by (expert, source rank, token): what expert_gemm reads
// With sequences dealt to ranks in order, (source rank, token) is the order of the global batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/device/tensor.h"
#include "trainer/model/layer_routes.h"
#include "trainer/placement/compute_placement.h"

namespace moetrain {

// The routes of one layer for one micro-batch, and the memory for moving rows along them: routes
// are planned on the host, rows stay on the device. Reused micro-batch after micro-batch. All calls
// are collectives of the placement's group; after a failed one only plan() may be called.
class Dispatch {
 public:
  explicit Dispatch(Device& device) : device_(device) {}

  // choice: [tokens, top_k], experts of the layer, distinct per token. Gathers the counts of all.
  Status plan(Comm& comm, const ComputePlacement& placement, uint32_t layer, uint32_t top_k,
              std::span<const int32_t> choice);

  // Row of assignment (token, k) in send order; kInt64 [tokens, top_k]. One-to-one onto
  // [0, sent_rows()).
  const Tensor& positions() const { return device_positions_; }
  int64_t sent_rows() const { return static_cast<int64_t>(positions_.size()); }
  // Rows for each expert of this rank (experts_of_rank()), from all ranks; and their sum.
  std::span<const int64_t> expert_rows() const { return expert_rows_; }
  int64_t received_rows() const { return static_cast<int64_t>(expert_order_.size()); }

  // Rows that this rank sends to each rank of the group, itself among them.
  std::span<const int64_t> sent_to_ranks() const { return send_rows_; }
  // Rows that each rank of the group computes in this layer.
  std::span<const int64_t> rank_rows() const { return rank_rows_; }

  // rows [sent_rows, width] in send order -> expert_rows [received_rows, width] in expert order.
  Status to_experts(Comm& comm, int64_t width, const Tensor& rows, Tensor& expert_rows);
  // The way back: expert_rows -> rows.
  Status to_tokens(Comm& comm, int64_t width, const Tensor& expert_rows, Tensor& rows);
  // Bytes of rows received from other ranks since clear_received().
  uint64_t received_bytes() const { return received_bytes_; }
  void clear_received() { received_bytes_ = 0; }

 private:
  const LayerRoutes& routes_of(const ComputePlacement& placement, uint32_t layer);
  void lay_out_sends(const LayerRoutes& routes, std::span<const int64_t> sends,
                     std::span<const int32_t> choice);
  void lay_out_arrivals(const LayerRoutes& routes, std::span<const int64_t> rows, uint32_t rank);

  Device& device_;
  // routes_ is kept as long as the slots and nodes that it was made from stay the same.
  LayerSlots slots_;
  std::vector<uint32_t> node_of_rank_;
  std::optional<LayerRoutes> routes_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> send_rows_;     // per destination rank
  std::vector<int64_t> receive_rows_;  // per source rank
  std::vector<int64_t> expert_rows_;
  std::vector<int64_t> rank_rows_;
  std::vector<int64_t> expert_order_;  // row in expert order of each row in arrival order
  std::vector<int64_t> send_counts_;   // elements
  std::vector<int64_t> receive_counts_;
  uint64_t received_bytes_ = 0;
  Tensor device_positions_;
  Tensor device_expert_order_;
  Tensor arrivals_;  // rows in arrival order
};

}  // namespace moetrain
