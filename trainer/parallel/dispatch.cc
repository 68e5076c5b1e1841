#include "trainer/parallel/dispatch.h"

#include <numeric>

#include "trainer/device/device.h"

namespace moetrain {
namespace {

void multiply(std::span<const int64_t> rows, int64_t width, std::vector<int64_t>& counts) {
  counts.clear();
  for (const int64_t count : rows) counts.push_back(count * width);
}

}  // namespace

// `slot_counts` receives, rank after rank, this rank's rows for each slot of that rank.
void Dispatch::lay_out_sends(const ExpertPlacement& placement, uint32_t layer, uint32_t top_k,
                             std::span<const int32_t> choice, std::vector<int64_t>& slot_counts) {
  const auto address = slots_of_experts(placement, layer);
  std::vector<int64_t> first_slot(placement.ranks + 1, 0);
  for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
    first_slot[rank + 1] =
        first_slot[rank] + static_cast<int64_t>(placement.slots[layer][rank].size());
  }
  const auto flat_slot = [&](int32_t expert) {
    const SlotAddress& at = address[static_cast<size_t>(expert)].front();
    return static_cast<size_t>(first_slot[at.rank] + at.slot);
  };

  slot_counts.assign(static_cast<size_t>(first_slot.back()), 0);
  for (const int32_t expert : choice) ++slot_counts[flat_slot(expert)];
  send_rows_.assign(placement.ranks, 0);
  for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
    send_rows_[rank] = std::accumulate(slot_counts.begin() + first_slot[rank],
                                       slot_counts.begin() + first_slot[rank + 1], int64_t{0});
  }

  // A counting sort: stable, so tokens stay in order within a slot.
  std::vector<int64_t> next(slot_counts.size());
  std::exclusive_scan(slot_counts.begin(), slot_counts.end(), next.begin(), int64_t{0});
  positions_.resize(choice.size());
  CKPT_ASSERT(choice.size() % top_k == 0);
  for (size_t i = 0; i < choice.size(); ++i) positions_[i] = next[flat_slot(choice[i])]++;
}

// counts: [ranks, slots], the rows each rank sends to each slot of this one.
void Dispatch::lay_out_arrivals(std::span<const int64_t> counts, size_t slots) {
  const size_t ranks = slots == 0 ? 0 : counts.size() / slots;
  slot_rows_.assign(slots, 0);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t slot = 0; slot < slots; ++slot) {
      slot_rows_[slot] += counts[rank * slots + slot];
      receive_rows_[rank] += counts[rank * slots + slot];
    }
  }
  std::vector<int64_t> next(slots);
  std::exclusive_scan(slot_rows_.begin(), slot_rows_.end(), next.begin(), int64_t{0});
  expert_order_.clear();
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t slot = 0; slot < slots; ++slot) {
      for (int64_t i = 0; i < counts[rank * slots + slot]; ++i) {
        expert_order_.push_back(next[slot]++);
      }
    }
  }
}

Status Dispatch::plan(Comm& comm, const ExpertPlacement& placement, uint32_t layer, uint32_t top_k,
                      std::span<const int32_t> choice) {
  CKPT_ASSERT(placement.ranks == comm.size());
  std::vector<int64_t> sent_counts;
  lay_out_sends(placement, layer, top_k, choice, sent_counts);

  const auto& slots = placement.slots[layer];
  const size_t own_slots = slots[comm.rank()].size();
  std::vector<int64_t> send_sizes;
  for (const auto& rank_slots : slots)
    send_sizes.push_back(static_cast<int64_t>(rank_slots.size()));
  const std::vector<int64_t> receive_sizes(comm.size(), static_cast<int64_t>(own_slots));
  std::vector<int64_t> received_counts(comm.size() * own_slots);
  CKPT_TRY(comm.all_to_all_v(std::span<const int64_t>(sent_counts), send_sizes,
                             std::span<int64_t>(received_counts), receive_sizes));

  receive_rows_.assign(comm.size(), 0);
  lay_out_arrivals(received_counts, own_slots);
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
  device_.scatter_rows(width, device_expert_order_, arrivals_, expert_rows);
  return {};
}

Status Dispatch::to_tokens(Comm& comm, int64_t width, const Tensor& expert_rows, Tensor& rows) {
  multiply(send_rows_, width, send_counts_);
  multiply(receive_rows_, width, receive_counts_);
  arrivals_.reshape(device_, expert_rows.type(), static_cast<size_t>(received_rows() * width));
  device_.gather_rows(width, device_expert_order_, expert_rows, arrivals_);
  return comm.all_to_all_v(arrivals_, receive_counts_, rows, send_counts_);
}

}  // namespace moetrain
