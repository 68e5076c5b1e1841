// Benches of arithmetic kernels, and of kernels other than pack that move bytes: the cases of the
// kernel checks in shapes of real models. Kernels that only move memory are compared with a copy on
// the device, products of matrices with one large product of cuBLAS.
#include <algorithm>
#include <numeric>
#include <random>

#include "bench/service/gpu/benches.h"
#include "kernels/adamw.h"
#include "kernels/byte_plane.h"
#include "kernels/cast.h"
#include "kernels/cuda/gemm.h"
#include "kernels/delta.h"
#include "tests/kernels/kernel_case.h"

namespace bench::gpu {

using ckpt::Status;
using ckpt::kernels::Arrays;
using ckpt::kernels::Bf16;
using ckpt::kernels::CudaQueue;
using ckpt::kernels::CudaVariant;
using ckpt::kernels::DeviceArray;
using ckpt::kernels::KernelCase;
using ckpt::kernels::Prepared;
using ckpt::kernels::Type;
using ckpt::kernels::Work;
using ckpt::kernels::Workspace;

namespace {

constexpr double kMemoryAim = 0.85;  // share of the copy's rate, for kernels bound by memory

// The limits, measured once for all rows.
struct Limits {
  Rate copy;     // GB that are read and written
  Rate product;  // TFLOP
};

// Random numbers between -1 and 1, which repeat every million.
Result<DeviceArray<std::byte>> random_numbers(const Context& context, size_t count, Type type) {
  constexpr size_t kBlock = 1 << 20;
  std::mt19937 random(static_cast<unsigned>(context.settings.seed));
  std::uniform_real_distribution<float> between(-1, 1);
  std::vector<float> wide(std::min(count, kBlock));
  for (float& value : wide) value = between(random);
  std::vector<Bf16> narrow(wide.size());
  ckpt::kernels::cast(static_cast<int64_t>(wide.size()), wide.data(), narrow.data());
  const void* const block = type == Type::kBf16 ? static_cast<void*>(narrow.data()) : wide.data();
  const size_t bytes = size_of(type);
  CKPT_ASSIGN(auto memory, DeviceArray<std::byte>::make(count * bytes));
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t now = std::min(count - at, kBlock);
    context.queue.upload(memory.data() + at * bytes, block, now * bytes);
  }
  CKPT_TRY(synchronize(context.queue));
  return memory;
}

// Everything that one call of a variant needs, owned.
struct Call {
  std::vector<DeviceArray<std::byte>> memory;
  Workspace work;
  Prepared prepared;
};

Result<Arrays> add_arrays(const Context& context, const std::vector<size_t>& counts,
                          const std::vector<Type>& types, Call& call) {
  Arrays arrays;
  for (size_t i = 0; i < counts.size(); ++i) {
    CKPT_ASSIGN(auto array, random_numbers(context, counts[i], types[i]));
    call.memory.push_back(std::move(array));
    arrays.emplace_back(call.memory.back().data(), types[i]);
  }
  return arrays;
}

Result<std::shared_ptr<Call>> prepare(const Context& context, const KernelCase& kernel,
                                      const CudaVariant& variant, bool backward) {
  auto call = std::make_shared<Call>();
  CKPT_ASSIGN(const Arrays inputs, add_arrays(context, kernel.inputs, variant.inputs, *call));
  CKPT_ASSIGN(const Arrays output, add_arrays(context, {kernel.outputs}, {variant.output}, *call));
  if (backward) {
    CKPT_ASSIGN(const Arrays gradients,
                add_arrays(context, kernel.inputs, variant.gradients, *call));
    call->prepared = variant.backward(context.queue, call->work, inputs, output.front(), gradients);
  } else {
    call->prepared = variant.forward(context.queue, call->work, inputs, output.front());
  }
  CKPT_TRY(synchronize(context.queue));
  return call;
}

// Cases with products are compared with the product, all others with the copy.
void bench_call(const Context& context, const std::string& what, const std::string& shape,
                const Work& work, const std::function<void()>& launch, const Limits& limits) {
  const bool products = work.flops > 0;
  const double units = products ? work.flops / 1e12 : work.bytes / 1e9;
  compare(context,
          {.what = what,
           .shape = shape,
           .unit = products ? "TFLOP/s" : "GB/s",
           .limit_name = products ? "one large bf16 product of cuBLAS"
                                  : "cudaMemcpyAsync on the device, bytes read and written",
           .pass_ratio = products ? 0 : kMemoryAim,
           .must = false,
           .paired = {},
           .verdict = {},
           .reason = {}},
          {.units_per_call = units, .call = [&] { return launch(), Status(); }},
          products ? limits.product : limits.copy);
}

Status bench_cases(const Context& context, const std::vector<KernelCase>& cases,
                   const Limits& limits) {
  for (const KernelCase& kernel : cases) {
    const std::string name = kernel.name.substr(0, kernel.name.find_first_of("0123456789") - 1);
    for (const CudaVariant& variant : kernel.cuda) {
      const bool products = kernel.forward_flops > 0;
      // Other variants exist for the checks: they use other paths of the same kernels.
      const bool usual = variant.name == "bf16" || (!products && variant.name == "fp32");
      if (!usual && variant.timed_as.empty()) continue;
      const std::string type = variant.name.substr(0, variant.name.find('_'));
      const std::string apart = usual ? "" : ", " + variant.timed_as;
      for (const bool backward : {false, true}) {
        CKPT_ASSIGN(const auto call, prepare(context, kernel, variant, backward));
        const Work work = backward ? backward_work(kernel, variant) : forward_work(kernel, variant);
        const std::string what =
            fmt::format("{} {} {}{}", name, backward ? "backward" : "forward", type, apart);
        bench_call(context, what, kernel.name, work, call->prepared.launch, limits);
      }
    }
  }
  return {};
}

// Kernels without a case: AdamW, casts, byte planes, deltas.
Status bench_bytes(const Context& context, int64_t count, const Limits& limits) {
  CudaQueue& queue = context.queue;
  Workspace work;
  std::vector<DeviceArray<std::byte>> memory;
  for (int i = 0; i < 4; ++i) {
    CKPT_ASSIGN(auto array, random_numbers(context, static_cast<size_t>(count), Type::kFloat));
    memory.push_back(std::move(array));
  }
  const auto floats = [&](size_t i) { return reinterpret_cast<float*>(memory[i].data()); };
  auto* const narrow = work.array<Bf16>(count);
  const std::string shape = fmt::format("{} elements", count);
  const auto elements = static_cast<double>(count);
  const auto run = [&](const char* what, double bytes_each, const std::function<void()>& launch) {
    bench_call(context, what, shape, {.bytes = bytes_each * elements, .flops = 0}, launch, limits);
  };
  run("cast to bf16", 6, [&] { cast(queue, count, floats(0), narrow); });
  run("cast to fp32", 6, [&] { cast(queue, count, narrow, floats(1)); });
  const int64_t bytes = count * int64_t{sizeof(float)};
  run("delta", 12,
      [&] { delta(queue, bytes, memory[0].data(), memory[1].data(), memory[2].data()); });
  run("byte planes of 2", 8,
      [&] { split_byte_planes(queue, 2 * count, 2, memory[0].data(), memory[2].data()); });
  run("byte planes of 4", 8,
      [&] { split_byte_planes(queue, count, 4, memory[0].data(), memory[2].data()); });
  run("byte planes joined", 8,
      [&] { join_byte_planes(queue, count, 4, memory[2].data(), memory[3].data()); });
  // Reads the gradient; reads and writes value and both moments; writes bf16. v is not negative.
  constexpr ckpt::kernels::AdamWStep kStep{.learning_rate = 1e-3, .weight_decay = 0.1, .step = 3};
  delta(queue, bytes, memory[3].data(), memory[3].data(), memory[3].data());
  run("adamw", 30, [&] {
    adamw_update(queue, kStep, count, floats(0), floats(1), floats(2), floats(3), narrow);
  });
  return {};
}

template <typename Real>
Result<Rate> product_of(const Context& context) {
  const int64_t size = context.settings.tiny ? 64 : 8192;
  const auto elements = static_cast<size_t>(size * size);
  struct Matrices {
    DeviceArray<std::byte> a, b, c;
  };
  auto matrices = std::make_shared<Matrices>();
  for (DeviceArray<std::byte>* matrix : {&matrices->a, &matrices->b, &matrices->c}) {
    CKPT_ASSIGN(*matrix, random_numbers(context, elements, ckpt::kernels::type_of<Real>()));
  }
  CudaQueue& queue = context.queue;
  const double flops = 2 * static_cast<double>(size) * static_cast<double>(elements);
  return Rate{.units_per_call = flops / 1e12, .call = [matrices, size, &queue] {
                const auto reals = [](const DeviceArray<std::byte>& array) {
                  return reinterpret_cast<Real*>(array.data());
                };
                // y = x w^T, as all layers are.
                ckpt::kernels::gemm<Real, Real>(
                    queue, {size, size, size}, 1.0f, {reals(matrices->a), size},
                    {reals(matrices->b), size, ckpt::kernels::Transpose::kYes}, 0.0f,
                    reals(matrices->c), size);
                return Status();
              }};
}

}  // namespace

Result<Rate> large_product(const Context& context, bool bf16) {
  return bf16 ? product_of<Bf16>(context) : product_of<float>(context);
}

Status bench_kernels(const Context& context) {
  const bool tiny = context.settings.tiny;
  Limits limits;
  CKPT_ASSIGN(limits.copy, device_copy(context, context.settings.payload_bytes));
  limits.copy.units_per_call *= 2;  // it reads and writes
  CKPT_ASSIGN(limits.product, large_product(context, /*bf16=*/true));
  CKPT_TRY(bench_bytes(context, tiny ? 5000 : 64 << 20, limits));
  CKPT_TRY(bench_cases(context, ckpt::kernels::dense_bench_cases(tiny), limits));
  return bench_cases(context, ckpt::kernels::moe_bench_cases(tiny), limits);
}

}  // namespace bench::gpu
