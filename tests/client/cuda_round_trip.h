// State of device memory staged into the slabs of a fake daemon, and restored from its windows.
#pragma once

#include "tests/client/cuda_client_fixture.h"
#include "tests/client/restoring_daemon.h"

namespace ckpt::test {

// Stages a snapshot, overwrites its state, and restores it to other memory.
class RoundTripTest : public CudaClientTest {
 protected:
  // Units of about `bytes` in all, with slots of 32 KiB and slabs of 64 KiB.
  void connect(uint64_t bytes) {
    restoring_.emplace(data_, 33'000);
    start({.slab_bytes = 64 << 10, .slab_count = 8}, restoring_->answers(daemon_));
    open({40, bytes, 3});
    pieces_ = upload();
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      auto array = DeviceArray<std::byte>::make(data_[unit].size());
      ASSERT_TRUE(array.ok());
      into_.push_back({unit, 0, array->data(), data_[unit].size()});
      tensors_.push_back(std::move(array).value());
    }
    ASSERT_FALSE(trainer_->wait());
  }
  void disconnect() {
    session_.reset();
    if (daemon_ != nullptr) daemon_->stop();
    daemon_.reset();
    plan_ = {};
    data_.clear();
    pieces_.clear();
    into_.clear();
    tensors_.clear();
  }

  ckpt_status open_cuda(uint32_t timeout_ms = 5000) {
    ckpt_cuda_options options = CKPT_INIT(ckpt_cuda_options);
    options.gather_bytes = gather_bytes_;
    options.chunk_bytes = chunk_bytes_;
    options.timeout_ms = timeout_ms;
    options.ahead_bytes = ahead_bytes_;
    options.direct_bytes = direct_bytes_;
    char error[512] = "";
    const ckpt_status status =
        ckpt_cuda_open(session_->handle(), &options, &cuda_, error, sizeof error);
    EXPECT_EQ(status == CKPT_OK, cuda_ != nullptr);
    EXPECT_EQ(status == CKPT_OK, error[0] == '\0') << error;
    return status;
  }
  // True if the ckpt_cuda_* call succeeded. A failed call must have an error message.
  bool succeeded(ckpt_status status) {
    if (status == CKPT_OK) return true;
    EXPECT_NE(std::string(ckpt_cuda_error(cuda_)).find("CUDA"), std::string::npos)
        << status << " " << ckpt_cuda_error(cuda_);
    return false;
  }
  // True if the snapshot was handed over; it has failed otherwise.
  bool save() {
    ++plan_.attempt;
    Snapshot snapshot = begin();
    bool saved = succeeded(stage(snapshot.handle(), pieces_));
    if (saved) {
      ckpt_cuda_advance(cuda_);
      saved = succeeded(ckpt_cuda_wait_gathered(cuda_, CKPT_CUDA_ALL_UNITS, trainer_->stream()));
      // Overwriting is allowed only after a successful wait.
      if (saved) overwrite();
      saved = succeeded(ckpt_cuda_drain(cuda_, 5000)) && saved;
    }
    if (saved) return true;
    size_t open = 1;
    (void)ckpt_cuda_poll(cuda_, &open);
    return false;
  }
  bool restore() {
    ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
    options.step = 1200;
    options.timeout_ms = 5000;
    return succeeded(ckpt_cuda_restore(cuda_, &options, into_.data(), into_.size(), nullptr,
                                       trainer_->stream()));
  }
  void expect_saved() {
    const size_t slabs = daemon_->wait_for(fb::MessageBody::BeginSnapshot, plan_.attempt)
                             .back()
                             .body.AsBeginSnapshot()
                             ->slabs_wanted;
    std::vector<fb::SealSlabT> found;
    for (size_t count = slabs; found.size() < slabs; ++count) {
      found = seals(count);
      std::erase_if(found,
                    [&](const fb::SealSlabT& seal) { return seal.attempt != plan_.attempt; });
    }
    expect_payload(found);
  }
  void expect_restored() {
    for (const ckpt_cuda_destination& one : into_) {
      std::vector<char> found(one.length);
      ASSERT_TRUE(kernels::download(*trainer_, found.data(), one.data, found.size()).ok());
      EXPECT_TRUE(found == data_[one.unit]) << "unit " << one.unit;
    }
  }
  // Uploads the original state again.
  void refill() {
    for (const ckpt_cuda_piece& piece : pieces_) {
      trainer_->upload(const_cast<void*>(piece.data), data_[piece.unit].data() + piece.offset,
                       piece.length);
    }
  }
  void spoil_destinations() {
    for (const ckpt_cuda_destination& one : into_) {
      cudaMemsetAsync(one.data, 0x55, one.length, trainer_->stream());
    }
  }

  // The gather buffer has two slots.
  uint64_t gather_bytes_ = 64 << 10;
  uint64_t chunk_bytes_ = 32 << 10;
  uint64_t ahead_bytes_ = 0;
  uint64_t direct_bytes_ = 0;
  std::optional<RestoringDaemon> restoring_;
  std::vector<ckpt_cuda_piece> pieces_;
  std::vector<ckpt_cuda_destination> into_;
};

}  // namespace ckpt::test
