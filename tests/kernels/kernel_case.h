// One struct per kernel case: inputs, tolerance, reference and the calls that run the kernel. The
// same case drives the comparison with a double-precision reference, the check of the gradient
// against finite differences of that reference, and the search for writes outside the outputs.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/kernels/cuda_variant.h"

namespace ckpt::kernels {

using Floats = std::vector<const float*>;  // one pointer per input
using Gradients = std::vector<float*>;     // one pointer per input
using Doubles = std::vector<std::vector<double>>;

struct KernelCase {
  std::string name;
  std::vector<size_t> inputs;  // elements of every differentiable input
  std::vector<bool> adds;      // per input: backward adds to its gradient (otherwise replaces)
  size_t outputs = 0;          // elements of the output
  double tolerance = 2e-6;     // ||a - b|| / ||b||, forward, in fp32
  double gradient_tolerance = 1e-5;  // relative, of a gradient along random directions
  // Absolute, in addition, for gradients that vanish: a top-1 weight is always one.
  double gradient_floor = 1e-6;
  bool forward_adds = false;  // forward adds to its output

  std::function<std::vector<double>(const Doubles& inputs)> reference;
  std::function<void(const Floats& inputs, float* output)> forward;
  // Runs forward first if backward needs what forward keeps.
  std::function<void(const Floats& inputs, const float* doutput, const Gradients& gradients)>
      backward;

  // For benchmarks.
  double forward_flops = 0;     // of matrix products; backward has twice as many
  std::vector<size_t> touched;  // accessed elements of each input and its gradient; empty: all
  size_t kept_bytes = 0;        // bytes that forward keeps for backward; 0 if negligible
  bool backward_reads_inputs = true;  // false: only the output's gradient and the kept bytes

  std::vector<CudaVariant> cuda;  // versions for a GPU; empty if the kernel has no CUDA version
};

inline void PrintTo(const KernelCase& kernel_case, std::ostream* out) { *out << kernel_case.name; }

std::vector<KernelCase> dense_cases();  // linear, rmsnorm, rope, attention, embedding, loss
std::vector<KernelCase> moe_cases();    // gate, permute, experts

// Wide cases: more blocks than a grid has, several tiles of a product, whole warps and a rest. Too
// large for references in double. `tiny` as below.
std::vector<KernelCase> dense_wide_cases(bool tiny);
std::vector<KernelCase> moe_wide_cases(bool tiny);

// Cases with shapes of real models, for timing. `tiny`: small shapes that an emulated device can
// finish.
std::vector<KernelCase> dense_bench_cases(bool tiny);
std::vector<KernelCase> moe_bench_cases(bool tiny);

// Least work of a call: every array is read or written once, and twice if added to.
Work forward_work(const KernelCase& kernel, const CudaVariant& variant);
Work backward_work(const KernelCase& kernel, const CudaVariant& variant);

}  // namespace ckpt::kernels
