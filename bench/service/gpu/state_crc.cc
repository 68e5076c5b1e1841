#include "bench/service/gpu/state_crc.h"

namespace bench::gpu {

using ckpt::kernels::ChecksumRun;
using ckpt::kernels::CudaPriority;
using ckpt::kernels::DeviceArray;

Result<std::unique_ptr<StateCrc>> StateCrc::make(std::span<const ckpt_cuda_piece> pieces,
                                                 int device) {
  std::unique_ptr<StateCrc> state(new StateCrc);
  CKPT_ASSIGN(state->queue_,
              ckpt::kernels::make_cuda_queue({.device = device, .priority = CudaPriority::kLow}));
  CKPT_TRY(state->begun_.make());
  std::vector<ChecksumRun> runs;
  runs.reserve(pieces.size());
  uint64_t bytes = 0;
  for (const ckpt_cuda_piece& piece : pieces) {
    runs.push_back({static_cast<const std::byte*>(piece.data), piece.length});
    bytes += piece.length;
  }
  std::vector<std::byte> tables(ckpt::kernels::pack_table_bytes(0, runs.size(), bytes));
  state->planned_ = ckpt::kernels::plan_checksums(runs, tables);
  CKPT_ASSIGN(state->tables_, DeviceArray<std::byte>::make(tables.size()));
  CKPT_ASSIGN(state->crc_, DeviceArray<uint32_t>::make(runs.size()));
  state->queue_->upload(state->tables_.data(), tables.data(), tables.size());
  CKPT_TRY(synchronize(*state->queue_));
  return state;
}

Status StateCrc::begin(CUstream_st* stream, unsigned blocks_max) {
  CKPT_TRY(begun_.record(stream));
  CKPT_TRY(begun_.hold(queue_->stream()));
  checksum(*queue_, planned_, tables_.data(), crc_.data(), blocks_max);
  return {};
}

Result<std::vector<uint32_t>> StateCrc::crc() {
  std::vector<uint32_t> crc(crc_.size());
  CKPT_TRY(download(*queue_, crc.data(), crc_.data(), crc.size() * sizeof(uint32_t)));
  return crc;
}

}  // namespace bench::gpu
