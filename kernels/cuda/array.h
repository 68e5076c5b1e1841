// DeviceArray<T>: memory of the current CUDA device, owned. PinnedArray<T>: the same on the host.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

// Content is undefined at first. The destructor waits for all work queued on the device.
template <typename T, Result<void*> (*kAllocate)(size_t), void (*kFree)(void*)>
class CudaArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  CudaArray() = default;
  static Result<CudaArray> make(size_t size) {
    CudaArray array;
    CKPT_ASSIGN(void* const at, kAllocate(size * sizeof(T)));
    array.data_ = static_cast<T*>(at);
    array.size_ = size;
    return array;
  }
  CudaArray(CudaArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  CudaArray& operator=(CudaArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~CudaArray() {
    if (data_ != nullptr) kFree(data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
using DeviceArray = CudaArray<T, cuda_allocate, cuda_free>;
template <typename T>
using PinnedArray = CudaArray<T, cuda_allocate_pinned, cuda_free_pinned>;

}  // namespace ckpt::kernels
