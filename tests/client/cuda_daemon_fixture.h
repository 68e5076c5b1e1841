// One rank with state in device memory, against the real daemon.
#pragma once

#include <gtest/gtest.h>

#include <ckpt/client_cuda.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"
#include "tests/client/trainers.h"

namespace ckpt::test {

using kernels::DeviceArray;

class CudaDaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (kernels::cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = kernels::make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    trainer_ = std::move(queue).value();
    auto session = open_trainer(daemon_, run_);
    ASSERT_OK(session);
    session_.emplace(std::move(session).value());
    ASSERT_OK(session_->join(as_rank(0, 1)));
    open_cuda();
    for (const uint64_t bytes : run_.unit_bytes) {
      auto array = DeviceArray<std::byte>::make(bytes);
      ASSERT_TRUE(array.ok());
      units_.push_back(std::move(array).value());
    }
  }

  void open_cuda() {
    client::CudaOptions options;
    options.gather_bytes = 256 << 10;
    options.chunk_bytes = 64 << 10;
    auto cuda = client::Cuda::open(*session_, options);
    ASSERT_OK(cuda);
    cuda_.emplace(std::move(cuda).value());
  }
  // Uploads the state of a step. Returns the pieces of a snapshot of all units.
  std::vector<ckpt_cuda_piece> upload_state(uint64_t step) {
    std::vector<ckpt_cuda_piece> pieces;
    for (uint32_t unit = 0; unit < units_.size(); ++unit) {
      const std::vector<char> state = run_.state(step, unit);
      trainer_->upload(units_[unit].data(), state.data(), state.size());
      pieces.push_back({unit, 0, units_[unit].data(), state.size()});
    }
    return pieces;
  }
  void save(uint64_t step) {
    const std::vector<ckpt_cuda_piece> pieces = upload_state(step);
    client::SnapshotOptions plan = run_.plan(step, 1);
    plan.streams = streams_;
    auto snapshot = session_->begin(plan);
    ASSERT_OK(snapshot);
    ASSERT_OK(cuda_->stage(*snapshot, pieces, trainer_->stream()));
    ASSERT_OK(cuda_->wait_gathered(CKPT_CUDA_ALL_UNITS, trainer_->stream()));
    spoil();
    ASSERT_OK(cuda_->drain(20'000));
    ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  }
  void spoil() {
    for (const auto& unit : units_) {
      const std::vector<char> zeros(unit.size());
      trainer_->upload(unit.data(), zeros.data(), zeros.size());
    }
  }
  // Destinations of all units, each in two ranges, the second range first.
  std::vector<ckpt_cuda_destination> destinations() const {
    std::vector<ckpt_cuda_destination> into;
    for (uint32_t unit = 0; unit < units_.size(); ++unit) {
      const uint64_t cut = units_[unit].size() / 3;
      into.push_back({unit, cut, units_[unit].data() + cut, units_[unit].size() - cut});
      into.push_back({unit, 0, units_[unit].data(), cut});
    }
    return into;
  }
  client::Outcome<std::vector<client::Restored>> restore(const client::RestoreOptions& options) {
    spoil();
    return cuda_->restore(options, destinations(), trainer_->stream());
  }
  void expect_unit(uint32_t unit, uint64_t step) {
    std::vector<char> found(units_[unit].size());
    ASSERT_TRUE(kernels::download(*trainer_, found.data(), units_[unit].data(), found.size()).ok());
    EXPECT_TRUE(found == run_.state(step, unit)) << "unit " << unit;
  }
  // Damages a unit of a step on the disk.
  void damage(uint64_t step, uint32_t unit) {
    const std::vector<char> state = run_.state(step, unit);
    const std::string begin(state.begin(), state.begin() + 64);
    int flipped = 0;
    for (const auto& entry : std::filesystem::directory_iterator(daemon_.data() + "/segments")) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::string all(16 << 20, 0);  // the used part; the segment is preallocated far beyond it
      in.read(all.data(), static_cast<std::streamsize>(all.size()));
      const size_t at = all.find(begin);
      if (at == std::string::npos) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(~begin[0]));
      ++flipped;
    }
    ASSERT_EQ(flipped, 1);
  }

  DaemonProcess daemon_;
  SmallRun run_;
  bool streams_ = false;
  std::unique_ptr<kernels::CudaQueue> trainer_;
  std::vector<DeviceArray<std::byte>> units_;
  std::optional<client::Session> session_;
  std::optional<client::Cuda> cuda_;
};

}  // namespace ckpt::test
