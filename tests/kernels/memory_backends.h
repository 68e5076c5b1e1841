// One test body for the backends of kernels that move bytes: host memory and functions without a
// queue, or a CUDA device (the emulated one where there is no CUDA).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

using Bytes = std::vector<std::byte>;

enum class Backend { kCpu, kCuda };

// Memory of a backend, `shift` bytes behind 256 bytes of alignment, with sentinels around it.
class BackendMemory {
 public:
  BackendMemory(CudaQueue* queue, const Bytes& content, uint64_t shift)
      : queue_(queue), bytes_(content.size()), begin_(kGuard + shift) {
    Bytes all(begin_ + bytes_ + kGuard, kSentinel);
    std::copy(content.begin(), content.end(), all.begin() + static_cast<ptrdiff_t>(begin_));
    if (queue_ != nullptr) {
      auto array = DeviceArray<std::byte>::make(all.size());
      EXPECT_TRUE(array.ok());
      on_device_ = std::move(array).value();
      queue_->upload(on_device_.data(), all.data(), all.size());
    } else {
      all.resize(all.size() + kGuard);  // room to align
      on_host_ = std::move(all);
      void* at = on_host_.data();
      size_t room = on_host_.size();
      std::align(kGuard, begin_ + bytes_ + kGuard, at, room);
      begin_ += static_cast<size_t>(static_cast<std::byte*>(at) - on_host_.data());
      std::fill(on_host_.begin(), on_host_.end(), kSentinel);
      std::copy(content.begin(), content.end(), on_host_.begin() + static_cast<ptrdiff_t>(begin_));
    }
  }

  std::byte* data() const {
    auto* const all =
        queue_ != nullptr ? on_device_.data() : const_cast<std::byte*>(on_host_.data());
    return all + begin_;
  }
  // What it holds. Fails the test if a sentinel has changed.
  Bytes read() const {
    Bytes all = on_host_;
    if (queue_ != nullptr) {
      all.resize(on_device_.size());
      const Status got = download(*queue_, all.data(), on_device_.data(), all.size());
      EXPECT_TRUE(got.ok()) << got.error().message;
    }
    const auto begin = all.begin() + static_cast<ptrdiff_t>(begin_);
    const auto end = begin + static_cast<ptrdiff_t>(bytes_);
    const auto untouched = [](std::byte value) { return value == kSentinel; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, untouched)) << "written in front";
    EXPECT_TRUE(std::all_of(end, all.end(), untouched)) << "written behind";
    return {begin, end};
  }

 private:
  static constexpr size_t kGuard = 256;  // an alignment, too
  static constexpr std::byte kSentinel{0xa7};

  CudaQueue* queue_;  // null: host memory
  size_t bytes_;
  size_t begin_;
  DeviceArray<std::byte> on_device_;
  Bytes on_host_;
};

class MemoryTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == Backend::kCpu) return;
    std::string reason;
    if (cuda_device_count(&reason) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << reason << ")";
    }
    auto queue = make_cuda_queue({});
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(queue).value();
  }

  std::unique_ptr<BackendMemory> memory(const Bytes& content, uint64_t shift) {
    return std::make_unique<BackendMemory>(queue_.get(), content, shift);
  }
  // Calls with the queue, or without an argument where there is none.
  template <typename Call>
  void run(const Call& call) {
    if (queue_ == nullptr) return call();
    call(*queue_);
  }
  Bytes random_bytes(uint64_t bytes) {
    Bytes some(bytes);
    for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(some.data() + i, &word, std::min(sizeof word, bytes - i));
    }
    return some;
  }
  static uint32_t* words(const BackendMemory& memory) {
    return reinterpret_cast<uint32_t*>(memory.data());
  }
  static std::vector<uint32_t> read_words(const BackendMemory& memory) {
    const Bytes bytes = memory.read();
    std::vector<uint32_t> all(bytes.size() / sizeof(uint32_t));
    if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  std::mt19937_64 random_{20241121};
  std::unique_ptr<CudaQueue> queue_;
};

inline std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::kCpu ? "cpu" : "cuda";
}

#define CKPT_ON_EVERY_BACKEND(test) \
  INSTANTIATE_TEST_SUITE_P(All, test, testing::Values(Backend::kCpu, Backend::kCuda), backend_name)

}  // namespace ckpt::kernels
