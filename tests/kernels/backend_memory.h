// Memory of a backend with sentinels around it, for checks of kernels that move bytes.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "formats/base/bytes.h"
#include "tests/kernels/checker.h"

namespace ckpt::kernels {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(Checker& checker, uint64_t bytes) {
  Bytes some(bytes);
  for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = checker.random();
    std::memcpy(some.data() + i, &word, std::min(sizeof word, bytes - i));
  }
  return some;
}

// Begins `shift` bytes after an address aligned to 256 bytes.
class BackendMemory {
 public:
  BackendMemory(Checker& checker, const Bytes& content, uint64_t shift)
      : checker_(checker), bytes_(content.size()), begin_(kGuard + shift) {
    Bytes all(begin_ + bytes_ + kGuard, kSentinel);
    std::copy(content.begin(), content.end(), all.begin() + static_cast<ptrdiff_t>(begin_));
    if (checker.on_gpu()) {
      auto array = DeviceArray<std::byte>::make(all.size());
      CKPT_ASSERT_MSG(array.ok(), array.error().message);
      on_device_ = std::move(array).value();
      checker.queue().upload(on_device_.data(), all.data(), all.size());
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
        checker_.on_gpu() ? on_device_.data() : const_cast<std::byte*>(on_host_.data());
    return all + begin_;
  }
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(data()); }
  // Current content. Adds a finding if a sentinel has changed.
  Bytes read() const {
    const Bytes all = checker_.on_gpu() ? checker_.read(on_device_) : on_host_;
    const auto begin = all.begin() + static_cast<ptrdiff_t>(begin_);
    const auto end = begin + static_cast<ptrdiff_t>(bytes_);
    const auto untouched = [](std::byte value) { return value == kSentinel; };
    checker_.expect(std::all_of(all.begin(), begin, untouched), "bytes in front were written");
    checker_.expect(std::all_of(end, all.end(), untouched), "bytes behind were written");
    return {begin, end};
  }
  std::vector<uint32_t> read_words() const {
    const Bytes bytes = read();
    std::vector<uint32_t> all(bytes.size() / sizeof(uint32_t));
    if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

 private:
  static constexpr size_t kGuard = 256;  // bytes; also the alignment
  static constexpr std::byte kSentinel{0xa7};

  Checker& checker_;
  size_t bytes_;
  size_t begin_;
  DeviceArray<std::byte> on_device_;
  Bytes on_host_;
};

// Adds the check for both backends.
inline void add_on_both(std::vector<Check>& all, const std::string& name,
                        const std::function<void(Checker&)>& run) {
  all.push_back({name + "_cpu", Backend::kCpu, run});
  all.push_back({name + "_cuda", Backend::kCuda, run});
}

}  // namespace ckpt::kernels
