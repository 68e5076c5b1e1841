// Tensor: numbers of one type in the memory of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/assert.h"
#include "formats/base/result.h"
#include "kernels/bf16.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

class Device;

enum class Type : uint8_t { kFloat, kBf16, kDouble, kInt32, kInt64, kByte };

// Bytes of one element.
constexpr size_t bytes_of(Type type) {
  switch (type) {
    case Type::kByte:
      return 1;
    case Type::kBf16:
      return 2;
    case Type::kFloat:
    case Type::kInt32:
      return 4;
    case Type::kDouble:
    case Type::kInt64:
      return 8;
  }
  return 0;
}

template <typename T>
inline constexpr Type kTypeOf = [] {
  static_assert(sizeof(T) == 0, "not a type of a tensor");
  return Type::kFloat;
}();
template <>
inline constexpr Type kTypeOf<float> = Type::kFloat;
template <>
inline constexpr Type kTypeOf<ckpt::kernels::Bf16> = Type::kBf16;
template <>
inline constexpr Type kTypeOf<double> = Type::kDouble;
template <>
inline constexpr Type kTypeOf<int32_t> = Type::kInt32;
template <>
inline constexpr Type kTypeOf<int64_t> = Type::kInt64;

// Owns its memory, which lives as long as the device and is used from the device's thread. Without
// memory until reshape(). If the device has no more memory, its next synchronize() returns the
// error; the tensor then has none, and no kernel is launched with it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Device& device, Type type, size_t size) { reshape(device, type, size); }
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  // Room for `size` elements. The memory stays if there is enough; the content is undefined.
  void reshape(Device& device, Type type, size_t size);

  Type type() const { return type_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * bytes_of(type_); }
  // Bytes of memory that the tensor has, which stays when it becomes smaller.
  size_t room_bytes() const { return room_; }
  bool empty() const { return size_ == 0; }
  Device* device() const { return device_; }
  // May be an address that only the device can read.
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

  // The elements for the device's kernels. T is the tensor's type.
  template <typename T>
  T* as() {
    CKPT_ASSERT(kTypeOf<T> == type_);
    return static_cast<T*>(memory_);
  }
  template <typename T>
  const T* as() const {
    CKPT_ASSERT(kTypeOf<T> == type_);
    return static_cast<const T*>(memory_);
  }

  // The elements, for the host to read and to write: only of a device that is the host.
  template <typename T>
  std::span<T> host() {
    check_host();
    return {as<T>(), size_};
  }
  template <typename T>
  std::span<const T> host() const {
    check_host();
    return {as<T>(), size_};
  }

  // Copies to and from host memory, for any device. `values` has the size of the tensor. write()
  // has read them when it returns; the device's next synchronize() returns its failure. read()
  // waits for all queued work; its errors are those of synchronize().
  template <typename T>
  void write(std::span<const T> values) {
    CKPT_ASSERT(kTypeOf<T> == type_ && values.size() == size_);
    write_bytes(std::as_bytes(values));
  }
  template <typename T>
  Status read(std::span<T> values) const {
    CKPT_ASSERT(kTypeOf<T> == type_ && values.size() == size_);
    return read_bytes(std::as_writable_bytes(values));
  }
  template <typename T>
  Result<std::vector<T>> read() const {
    std::vector<T> values(size_);
    CKPT_TRY(read(std::span<T>(values)));
    return values;
  }
  void write_bytes(std::span<const std::byte> bytes);
  Status read_bytes(std::span<std::byte> bytes) const;

  // Both have no effect on an empty tensor.
  void zero();
  // Becomes a copy of `other`, which is on the same device.
  void copy_from(const Tensor& other);

 private:
  void check_host() const;

  Device* device_ = nullptr;
  void* memory_ = nullptr;
  size_t room_ = 0;  // bytes
  size_t size_ = 0;
  Type type_ = Type::kFloat;
};

}  // namespace moetrain
