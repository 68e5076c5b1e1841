// A kernel case on a GPU: the same inputs and the same reference, other memory and other types.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"
#include "tests/kernels/test_device.h"

namespace ckpt::kernels {

enum class Type { kFloat, kBf16 };
template <typename Real>
constexpr Type type_of() {
  return std::is_same_v<Real, Bf16> ? Type::kBf16 : Type::kFloat;
}

// A pointer to device memory that knows its type; access with another type aborts.
class Untyped {
 public:
  Untyped(void* at, Type type) : at_(at), type_(type) {}
  template <typename T>
  T* as() const {
    CKPT_ASSERT(type_of<std::remove_const_t<T>>() == type_);
    return static_cast<T*>(at_);
  }
  // For calls that are templates: converts to the pointer that is wanted.
  template <typename T>
  operator T*() const {
    return as<T>();
  }

 private:
  void* at_;
  Type type_;
};

using Arrays = std::vector<Untyped>;  // of inputs, or of their gradients

// Device memory for `size` elements. Throws NoDeviceMemory.
template <typename T>
DeviceArray<T> device_array(int64_t size) {
  auto array = DeviceArray<T>::make(static_cast<size_t>(size));
  if (!array.ok()) throw NoDeviceMemory(array.error().message);
  return std::move(array).value();
}

// Device memory that a variant needs besides its arguments. Freed with it. Throws NoDeviceMemory.
class Workspace {
 public:
  template <typename T>
  T* array(int64_t count) {
    arrays_.push_back(device_array<std::byte>(count * static_cast<int64_t>(sizeof(T))));
    return reinterpret_cast<T*>(arrays_.back().data());
  }
  template <typename T>
  T* array(CudaQueue& queue, const std::vector<T>& content) {
    T* const at = array<T>(static_cast<int64_t>(content.size()));
    queue.upload(at, content.data(), content.size() * sizeof(T));
    return at;
  }

 private:
  std::vector<DeviceArray<std::byte>> arrays_;
};

// A call that is ready to go.
struct Prepared {
  // Queues the kernels and nothing else: what a benchmark times, again and again. Only the first
  // time computes what the case says: some kernels work in place.
  std::function<void()> launch;
  // Then brings results that no kernel brings where they belong; may be null.
  std::function<void()> finish;
};

// The least that has to be moved and computed.
struct Work {
  double bytes = 0;
  double flops = 0;
};

struct CudaVariant {
  std::string name;             // "fp32"
  std::vector<Type> inputs;     // by input
  Type output = Type::kFloat;   // of the output and of its gradient
  std::vector<Type> gradients;  // by input
  // Elements from an aligned address to each array's first: kernels that move packs find none.
  size_t offset = 0;
  // The variant's name in gpu_bench's rows. Variants with a name of their own and without this are
  // not timed.
  std::string timed_as;
  double tolerance = 2e-6;  // as in KernelCase, against the inputs as rounded to their types
  double gradient_tolerance = 1e-5;
  std::function<Prepared(CudaQueue&, Workspace&, const Arrays& inputs, Untyped output)> forward;
  // Preparation runs forward if backward needs what forward keeps.
  std::function<Prepared(CudaQueue&, Workspace&, const Arrays& inputs, Untyped doutput,
                         const Arrays& gradients)>
      backward;
};

inline size_t size_of(Type type) { return type == Type::kBf16 ? sizeof(Bf16) : sizeof(float); }

// Name and tolerances of a variant that computes in Real. bf16 has 8 bits: one rounding of a value
// is off by 2^-9 at most, half of that as a root mean square.
template <typename Real>
CudaVariant cuda_variant() {
  CudaVariant variant;
  const bool bf16 = type_of<Real>() == Type::kBf16;
  variant.name = bf16 ? "bf16" : "fp32";
  if (bf16) variant.tolerance = variant.gradient_tolerance = 6e-3;
  return variant;
}

// The same variant with arrays that are not aligned.
inline CudaVariant unaligned(CudaVariant variant) {
  variant.name += "_unaligned";
  variant.offset = 1;
  return variant;
}

// The same with this content, for checks that have no case.
template <typename T>
DeviceArray<T> device_array(CudaQueue& queue, const std::vector<T>& content) {
  DeviceArray<T> array = device_array<T>(static_cast<int64_t>(content.size()));
  queue.upload(array.data(), content.data(), content.size() * sizeof(T));
  return array;
}

}  // namespace ckpt::kernels
