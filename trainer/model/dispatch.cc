#include "trainer/model/dispatch.h"

#include <numeric>

#include "trainer/device/device.h"

namespace moetrain {
namespace {

void multiply(std::span<const int64_t> rows, int64_t width, std::vector<int64_t>& counts) {
  counts.clear();
  for (const int64_t count : rows) counts.push_back(count * width);
}

// Bytes from other ranks, of counts of elements by source rank.
uint64_t bytes_from_others(std::span<const int64_t> counts, uint32_t rank, Type type) {
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return static_cast<uint64_t>(all - counts[rank]) * bytes_of(type);
}

}  // namespace

const LayerRoutes& Dispatch::routes_of(const ComputePlacement& placement, uint32_t layer) {
  const LayerSlots& slots = placement.slots[layer];
  if (!routes_ || routes_->experts() != placement.experts || slots_ != slots ||
      node_of_rank_ != placement.node_of_rank) {
    slots_ = slots;
    node_of_rank_ = placement.node_of_rank;
    routes_.emplace(slots_, placement.experts, node_of_rank_);
  }
  return *routes_;
}

// sends: this rank's rows for each group.
void Dispatch::lay_out_sends(const LayerRoutes& routes, std::span<const int64_t> sends,
                             std::span<const int32_t> choice) {
  send_rows_.assign(routes.ranks(), 0);
  for (uint32_t rank = 0; rank < routes.ranks(); ++rank) {
    for (size_t group = routes.first_group(rank); group < routes.first_group(rank + 1); ++group) {
      send_rows_[rank] += sends[group];
    }
  }
  // A counting sort: stable, so tokens stay in order within a group.
  std::vector<int64_t> next(sends.size());
  std::exclusive_scan(sends.begin(), sends.end(), next.begin(), int64_t{0});
  std::vector<int64_t> left(sends.begin(), sends.end());
  std::vector<size_t> holder(routes.experts(), 0);  // the one whose share is being filled
  positions_.resize(choice.size());
  for (size_t i = 0; i < choice.size(); ++i) {
    const auto expert = static_cast<uint32_t>(choice[i]);
    const std::span<const size_t> groups = routes.groups_of(expert);
    size_t& at = holder[expert];
    while (left[groups[at]] == 0) ++at;  // ends: the shares sum to the expert's tokens
    --left[groups[at]];
    positions_[i] = next[groups[at]]++;
  }
}

// rows: [rank][group], of all ranks.
void Dispatch::lay_out_arrivals(const LayerRoutes& routes, std::span<const int64_t> rows,
                                uint32_t rank) {
  const size_t first = routes.first_group(rank);
  const size_t experts = routes.first_group(rank + 1) - first;
  const auto from = [&](uint32_t source) {
    return rows.subspan(source * routes.groups() + first, experts);
  };
  expert_rows_.assign(experts, 0);
  receive_rows_.assign(routes.ranks(), 0);
  for (uint32_t source = 0; source < routes.ranks(); ++source) {
    for (size_t expert = 0; expert < experts; ++expert) {
      expert_rows_[expert] += from(source)[expert];
      receive_rows_[source] += from(source)[expert];
    }
  }
  std::vector<int64_t> next(experts);
  std::exclusive_scan(expert_rows_.begin(), expert_rows_.end(), next.begin(), int64_t{0});
  expert_order_.clear();
  for (uint32_t source = 0; source < routes.ranks(); ++source) {
    for (size_t expert = 0; expert < experts; ++expert) {
      for (int64_t i = 0; i < from(source)[expert]; ++i) expert_order_.push_back(next[expert]++);
    }
  }
  rank_rows_.assign(routes.ranks(), 0);
  for (uint32_t at = 0; at < routes.ranks(); ++at) {
    for (size_t group = routes.first_group(at); group < routes.first_group(at + 1); ++group) {
      for (uint32_t source = 0; source < routes.ranks(); ++source) {
        rank_rows_[at] += rows[source * routes.groups() + group];
      }
    }
  }
}

Status Dispatch::plan(Comm& comm, const ComputePlacement& placement, uint32_t layer, uint32_t top_k,
                      std::span<const int32_t> choice) {
  CKPT_ASSERT(placement.ranks == comm.size());
  CKPT_ASSERT(choice.size() % top_k == 0);
  const LayerRoutes& routes = routes_of(placement, layer);
  std::vector<int64_t> own(placement.experts, 0);
  for (const int32_t expert : choice) ++own.at(static_cast<size_t>(expert));
  std::vector<int64_t> tokens(size_t{comm.size()} * placement.experts);
  CKPT_TRY(comm.all_gather(own, tokens));

  const std::vector<int64_t> rows = routes.share(tokens);
  lay_out_sends(routes, std::span(rows).subspan(comm.rank() * routes.groups(), routes.groups()),
                choice);
  lay_out_arrivals(routes, rows, comm.rank());
  device_positions_.reshape(device_, Type::kInt64, positions_.size());
  device_positions_.write(std::span<const int64_t>(positions_));
  device_expert_order_.reshape(device_, Type::kInt64, expert_order_.size());
  device_expert_order_.write(std::span<const int64_t>(expert_order_));
  return {};
}

Status Dispatch::to_experts(Comm& comm, int64_t width, const Tensor& rows, Tensor& expert_rows) {
  multiply(send_rows_, width, send_counts_);
  multiply(receive_rows_, width, receive_counts_);
  arrivals_.reshape(device_, rows.type(), static_cast<size_t>(received_rows() * width));
  CKPT_TRY(comm.all_to_all_v(rows, send_counts_, arrivals_, receive_counts_));
  received_bytes_ += bytes_from_others(receive_counts_, comm.rank(), rows.type());
  device_.scatter_rows(width, device_expert_order_, arrivals_, expert_rows);
  return {};
}

Status Dispatch::to_tokens(Comm& comm, int64_t width, const Tensor& expert_rows, Tensor& rows) {
  multiply(send_rows_, width, send_counts_);
  multiply(receive_rows_, width, receive_counts_);
  arrivals_.reshape(device_, expert_rows.type(), static_cast<size_t>(received_rows() * width));
  device_.gather_rows(width, device_expert_order_, expert_rows, arrivals_);
  CKPT_TRY(comm.all_to_all_v(arrivals_, receive_counts_, rows, send_counts_));
  received_bytes_ += bytes_from_others(send_counts_, comm.rank(), rows.type());
  return {};
}

}  // namespace moetrain
