#include "bench/gpu/state_crc.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace bench::gpu {

using ckpt::kernels::CudaPriority;
using ckpt::kernels::DeviceArray;
using ckpt::kernels::PackRange;

Result<std::unique_ptr<StateCrc>> StateCrc::make(std::span<const ckpt_cuda_piece> pieces,
                                                 int device) {
  std::unique_ptr<StateCrc> state(new StateCrc);
  CKPT_ASSIGN(state->queue_,
              ckpt::kernels::make_cuda_queue({.device = device, .priority = CudaPriority::kLow}));
  CKPT_TRY(state->begun_.make());
  const auto address = [&](size_t piece) {
    return reinterpret_cast<uintptr_t>(pieces[piece].data);
  };
  state->order_.resize(pieces.size());
  std::iota(state->order_.begin(), state->order_.end(), size_t{0});
  std::sort(state->order_.begin(), state->order_.end(),
            [&](size_t a, size_t b) { return address(a) < address(b); });
  // A pack without pieces only reads: its buffer is all memory from the first piece on, of which
  // the pieces are the ranges.
  const uintptr_t first = pieces.empty() ? 0 : address(state->order_.front());
  const uintptr_t base = first - first % ckpt::kernels::kPackBufferAlignment;
  state->base_ = reinterpret_cast<std::byte*>(base);
  std::vector<PackRange> ranges;
  ranges.reserve(pieces.size());
  for (const size_t piece : state->order_) {
    ranges.push_back({address(piece) - base, pieces[piece].length});
  }
  std::vector<std::byte> tables(ckpt::kernels::pack_table_bytes(0, ranges.size()));
  state->planned_ = ckpt::kernels::plan_pack({}, ranges, tables);
  CKPT_ASSIGN(state->tables_, DeviceArray<std::byte>::make(tables.size()));
  CKPT_ASSIGN(state->crc_, DeviceArray<uint32_t>::make(ranges.size()));
  state->queue_->upload(state->tables_.data(), tables.data(), tables.size());
  CKPT_TRY(synchronize(*state->queue_));
  return state;
}

Status StateCrc::begin(CUstream_st* stream) {
  CKPT_TRY(begun_.record(stream));
  CKPT_TRY(begun_.hold(queue_->stream()));
  pack(*queue_, planned_, tables_.data(), base_, crc_.data());
  return {};
}

Result<std::vector<uint32_t>> StateCrc::crc() {
  std::vector<uint32_t> by_range(order_.size());
  CKPT_TRY(download(*queue_, by_range.data(), crc_.data(), by_range.size() * sizeof(uint32_t)));
  std::vector<uint32_t> by_piece(order_.size());
  for (size_t range = 0; range < order_.size(); ++range) by_piece[order_[range]] = by_range[range];
  return by_piece;
}

}  // namespace bench::gpu
