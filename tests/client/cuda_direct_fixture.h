// Snapshots larger than the gather buffer: their long runs are drained straight from the tensors,
// without the buffer.
#pragma once

#include <random>

#include "tests/client/cuda_client_fixture.h"

namespace ckpt::test {

inline constexpr uint64_t kDirectSlots = 4;
inline constexpr uint64_t kDirectChunkBytes = 64 << 10;
inline constexpr ckpt_cuda_options kDirect{.gather_bytes = kDirectSlots * kDirectChunkBytes,
                                           .chunk_bytes = kDirectChunkBytes,
                                           .direct_bytes = 16 << 10};

class CudaDirectTest : public CudaClientTest {
 protected:
  // More than half of these bytes come before the part that is always gathered.
  const std::vector<uint64_t> mixed_{100, 200'000, 3, 70'001, 65'536, 1, 300'001, 64, 150'000, 9};

  void connect(const std::vector<uint64_t>& unit_bytes, const ckpt_cuda_options& options) {
    start({.slab_bytes = kSlabBytes, .slab_count = 16});
    open_with_cuda(unit_bytes, options);
  }
  // Uploads every unit as tensors of a few bytes or of some chunks, at any address.
  std::vector<ckpt_cuda_piece> upload_mixed() {
    std::mt19937_64 random(7);
    std::vector<ckpt_cuda_piece> pieces;
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      for (uint64_t at = 0; at < data_[unit].size();) {
        const uint64_t wanted = random() % 2 == 0 ? 1 + random() % 3000 : random() % 100'000;
        const uint64_t bytes = std::min(wanted, data_[unit].size() - at);
        pieces.push_back({unit, at, upload_tensor(unit, at, bytes, random() % 17), bytes});
        at += bytes;
      }
    }
    return pieces;
  }
  // Uploads every unit as one tensor.
  std::vector<ckpt_cuda_piece> upload_whole() {
    std::vector<ckpt_cuda_piece> pieces;
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      const uint64_t bytes = data_[unit].size();
      pieces.push_back({unit, 0, upload_tensor(unit, 0, bytes, 0), bytes});
    }
    return pieces;
  }
  void overwrite_unit(const std::vector<ckpt_cuda_piece>& pieces, uint32_t unit) {
    for (const ckpt_cuda_piece& piece : pieces) {
      if (piece.unit != unit) continue;
      cudaMemsetAsync(const_cast<void*>(piece.data), 0x77, piece.length, trainer_->stream());
    }
  }
  // The seals of the attempt, once they cover all bytes.
  std::vector<fb::SealSlabT> seals_of(uint32_t attempt) {
    uint64_t wanted = 0;
    for (const auto& bytes : data_) wanted += bytes.size();
    for (size_t count = 1;; ++count) {
      std::vector<fb::SealSlabT> found = seals(count);
      std::erase_if(found, [&](const fb::SealSlabT& seal) { return seal.attempt != attempt; });
      uint64_t bytes = 0;
      for (const fb::SealSlabT& seal : found) {
        for (const fb::SealedFragment& fragment : seal.fragments) bytes += fragment.length();
      }
      if (bytes >= wanted || HasFailure()) return found;
    }
  }

 private:
  void* upload_tensor(uint32_t unit, uint64_t at, uint64_t bytes, uint64_t misaligned) {
    auto array = DeviceArray<std::byte>::make(bytes + misaligned);
    EXPECT_TRUE(array.ok());
    std::byte* const to = array->data() + misaligned;
    trainer_->upload(to, data_[unit].data() + at, bytes);
    tensors_.push_back(std::move(array).value());
    return to;
  }
};

}  // namespace ckpt::test
