// A kernel case on a GPU: the same inputs and the same reference, other memory and other types.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

enum class Type { kFloat, kBf16 };
template <typename Real>
constexpr Type type_of() {
  return std::is_same_v<Real, Bf16> ? Type::kBf16 : Type::kFloat;
}

// A pointer to device memory that knows what is there; a wrong type aborts.
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

struct CudaVariant {
  std::string name;             // "fp32"
  std::vector<Type> inputs;     // by input
  Type output = Type::kFloat;   // of the output and of its gradient
  std::vector<Type> gradients;  // by input
  double tolerance = 2e-6;      // as in KernelCase, against the inputs as rounded to their types
  double gradient_tolerance = 1e-5;
  std::function<void(CudaQueue&, const std::vector<Untyped>& inputs, Untyped output)> forward;
  // Runs forward first where backward needs what it keeps.
  std::function<void(CudaQueue&, const std::vector<Untyped>& inputs, Untyped doutput,
                     const std::vector<Untyped>& gradients)>
      backward;
};

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

// What a variant needs besides: device memory that lives as long as the call.
template <typename T>
DeviceArray<T> device_array(int64_t size) {
  auto array = DeviceArray<T>::make(static_cast<size_t>(size));
  CKPT_ASSERT_MSG(array.ok(), array.error().message);
  return std::move(array).value();
}
template <typename T>
DeviceArray<T> device_array(CudaQueue& queue, const std::vector<T>& content) {
  DeviceArray<T> array = device_array<T>(static_cast<int64_t>(content.size()));
  queue.upload(array.data(), content.data(), content.size() * sizeof(T));
  return array;
}

}  // namespace ckpt::kernels
