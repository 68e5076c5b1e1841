// DeviceArray<T>: memory of the current CUDA device, owned.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

// Content is undefined at first. Its end waits for whatever is queued anywhere on the device.
template <typename T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceArray() = default;
  static Result<DeviceArray> make(size_t size) {
    DeviceArray array;
    CKPT_ASSIGN(void* const at, cuda_allocate(size * sizeof(T)));
    array.data_ = static_cast<T*>(at);
    array.size_ = size;
    return array;
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) cuda_free(data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ckpt::kernels
