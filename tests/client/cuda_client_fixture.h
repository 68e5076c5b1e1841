// A session of one rank with a fake daemon, and a libckpt_cuda on it. On a GPU, or on the emulated
// device.
#pragma once

#include <cuda_runtime.h>

#include "ckpt/ckpt_cuda.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"
#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {

using kernels::DeviceArray;

// A gather buffer of two chunks.
inline constexpr ckpt_cuda_options kSmall{.gather_bytes = 128 << 10, .chunk_bytes = 64 << 10};

class CudaClientTest : public SnapshotTest {
 protected:
  void SetUp() override {
    std::string reason;
    if (kernels::cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = kernels::make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    trainer_ = std::move(queue).value();
  }
  void TearDown() override {
    if (cuda_ != nullptr) (void)ckpt_cuda_close(cuda_);
    // The daemon's thread uses members of derived fixtures, which are destroyed before it.
    session_.reset();
    if (daemon_ != nullptr) daemon_->stop();
    daemon_.reset();
  }
  void open_with_cuda(const std::vector<uint64_t>& unit_bytes, ckpt_cuda_options options) {
    open(unit_bytes);
    char error[512] = "";
    options.struct_size = sizeof options;
    ASSERT_EQ(ckpt_cuda_open(session_->handle(), &options, &cuda_, error, sizeof error), CKPT_OK)
        << error;
  }
  // Uploads every unit as tensors that lie apart, some at odd addresses.
  std::vector<ckpt_cuda_piece> upload() {
    std::vector<ckpt_cuda_piece> pieces;
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      const std::vector<char>& bytes = data_[unit];
      const uint64_t cut = bytes.size() / 3;
      const uint64_t ends[] = {cut, bytes.size()};
      for (uint64_t at = 0; const uint64_t end : ends) {
        if (end == at) continue;
        auto array = DeviceArray<std::byte>::make(end - at + unit % 2);
        EXPECT_TRUE(array.ok());
        std::byte* to = array->data() + unit % 2;
        trainer_->upload(to, bytes.data() + at, end - at);
        pieces.push_back({unit, at, to, end - at});
        tensors_.push_back(std::move(array).value());
        at = end;
      }
    }
    return pieces;
  }
  ckpt_status stage(ckpt_snapshot* snapshot, const std::vector<ckpt_cuda_piece>& pieces) {
    return ckpt_cuda_stage(cuda_, snapshot, pieces.data(), pieces.size(), trainer_->stream());
  }
  // Overwrites all tensors on the trainer's stream, as an optimizer does.
  void overwrite() {
    for (const DeviceArray<std::byte>& tensor : tensors_) {
      cudaMemsetAsync(tensor.data(), 0x77, tensor.size(), trainer_->stream());
    }
  }

  std::unique_ptr<kernels::CudaQueue> trainer_;
  std::vector<DeviceArray<std::byte>> tensors_;
  ckpt_cuda* cuda_ = nullptr;
};

}  // namespace ckpt::test
