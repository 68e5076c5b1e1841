// The benches of gpu_bench. Each rate is compared with a limit that is measured in turns with it,
// on the same device, in the same run (bench/common/paired.h).
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/service/gpu/report.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"

namespace bench::gpu {

struct Settings {
  bool tiny = false;           // shapes that an emulated device can finish; no figures
  int pairs = 11;              // of limit and engine; up to 3 times as many for a bound
  double sample_seconds = 0;   // a call is repeated until a sample takes this long; 0: once
  uint64_t payload_bytes = 0;  // payload of checkpoint benches
  uint64_t seed = 0;
  // Warm-up of limit and engine before the program's first pair: clocks rise only under load.
  double warm_up_seconds = 0;
  std::set<std::string> skip;  // names of rows that are already known: not measured
};

struct Context {
  const Settings& settings;
  ckpt::kernels::CudaQueue& queue;
  std::function<void(const Row&)> found;                       // each row, as soon as it is known
  std::function<void(const std::string&)> progress;            // name of the next measurement
  std::shared_ptr<bool> warm = std::make_shared<bool>(false);  // the device, for its first pair
};

// A kernel's error after which CUDA refuses every call of this process. The remaining benches need
// another process.
class DeviceLost : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something that is timed: `call` queues it, or does it and waits.
struct Rate {
  double units_per_call = 0;  // work of one call, in the row's unit
  std::function<ckpt::Status()> call;
};
// Measures engine and limit in turns, both warm, and reports the row. If a call fails, the row says
// so and the benches continue, unless the device is lost (DeviceLost).
void compare(const Context& context, Row row, const Rate& engine, const Rate& limit);

// Device memory with random content, which repeats every few MiB.
ckpt::Result<ckpt::kernels::DeviceArray<std::byte>> random_memory(const Context& context,
                                                                  uint64_t bytes);
// Copies `bytes` within the device's memory; counted once, in GB.
ckpt::Result<Rate> device_copy(const Context& context, uint64_t bytes);
// Copies `bytes` between the device's memory and pinned host memory, in one piece, in GB.
enum class Direction { kToHost, kToDevice };
ckpt::Result<Rate> host_copy(const Context& context, uint64_t bytes, Direction direction);

// Multiplies two square matrices that fill the device, in TFLOP; fp32 or bf16.
ckpt::Result<Rate> large_product(const Context& context, bool bf16);

// Each function adds its rows; an error means that the setup failed.
ckpt::Status bench_pack(const Context& context);      // pack and unpack: pack_bench.cc
ckpt::Status bench_staging(const Context& context);   // device to arena: stage_bench.cc
ckpt::Status bench_kernels(const Context& context);   // arithmetic and byte planes: kernel_bench.cc
ckpt::Status bench_training(const Context& context);  // steps of a model: train_bench.cc

}  // namespace bench::gpu
