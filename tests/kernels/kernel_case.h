// One struct per kernel case: its inputs, its tolerance, what it should compute and how to run it.
// The same case drives the comparison with a double-precision reference, the check of the gradient
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
  double gradient_tolerance = 1e-5;  // the same of a gradient along random directions
  // Beside it, for gradients that vanish: a top-1 weight is always one.
  double gradient_floor = 1e-6;
  bool forward_adds = false;  // forward adds to its output

  std::function<std::vector<double>(const Doubles& inputs)> reference;
  std::function<void(const Floats& inputs, float* output)> forward;
  // Runs forward first where backward needs what it keeps.
  std::function<void(const Floats& inputs, const float* doutput, const Gradients& gradients)>
      backward;

  // For benchmarks.
  double forward_flops = 0;     // of matrix products; backward's are twice as many
  std::vector<size_t> touched;  // elements of every input and its gradient; empty: all of them
  size_t kept_bytes = 0;        // what forward leaves for backward, where it is not next to nothing
  bool backward_reads_inputs = true;  // and not only the gradient of the output and what was kept

  std::vector<CudaVariant> cuda;  // the same on a GPU; none if the kernel has no CUDA version
};

inline void PrintTo(const KernelCase& kernel_case, std::ostream* out) { *out << kernel_case.name; }

std::vector<KernelCase> dense_cases();  // linear, rmsnorm, rope, attention, embedding, loss
std::vector<KernelCase> moe_cases();    // gate, permute, experts

// The same in more blocks than a grid has, several tiles of a product, whole warps and a rest: too
// large for references in double. `tiny` as below.
std::vector<KernelCase> dense_wide_cases(bool tiny);
std::vector<KernelCase> moe_wide_cases(bool tiny);

// The same with shapes as a model has them, to be timed. With `tiny` they are small, so that an
// emulated device comes to an end.
std::vector<KernelCase> dense_bench_cases(bool tiny);
std::vector<KernelCase> moe_bench_cases(bool tiny);

// What a call has to do at least: every array is read or written once, and twice if added to.
Work forward_work(const KernelCase& kernel, const CudaVariant& variant);
Work backward_work(const KernelCase& kernel, const CudaVariant& variant);

}  // namespace ckpt::kernels
