#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "bench/service/gpu/benches.h"
#include "tests/kernels/test_device.h"

namespace bench::gpu {

using ckpt::Status;
using ckpt::kernels::CudaQueue;
using ckpt::kernels::DeviceArray;
using ckpt::kernels::PinnedArray;

namespace {

using Clock = std::chrono::steady_clock;

// Duration of `repeats` calls: from queueing the first until the device has completed the last.
Result<double> seconds_of(CudaQueue& queue, const Rate& rate, int repeats) {
  CKPT_TRY(synchronize(queue));
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) CKPT_TRY(rate.call());
  CKPT_TRY(synchronize(queue));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Number of calls that fill a sample. Warms the rate up, too.
Result<int> repeats_for(const Context& context, const Rate& rate) {
  constexpr int kRepeatsMax = 10'000;
  CKPT_ASSIGN(double once, seconds_of(context.queue, rate, 1));
  if (context.settings.sample_seconds > 0) {
    CKPT_ASSIGN(once, seconds_of(context.queue, rate, 1));
  }
  const double wanted = context.settings.sample_seconds / std::max(once, 1e-6);
  return std::clamp(static_cast<int>(std::ceil(wanted)), 1, kRepeatsMax);
}

// Warms the device up once per program, with the work of the first row.
Status warm_up(const Context& context, const Rate& engine, const Rate& limit) {
  const double seconds = context.settings.warm_up_seconds;
  if (std::exchange(*context.warm, true) || seconds <= 0) return {};
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    CKPT_TRY(seconds_of(context.queue, limit, 1));
    CKPT_TRY(seconds_of(context.queue, engine, 1));
  } while (Clock::now() < end);
  return {};
}

// Rows with a bound get more pairs if the limit does not repeat itself.
Pairs pairs_for(const Context& context, const Row& row) {
  const int pairs = context.settings.pairs;
  if (row.pass_ratio == 0 || !row.must) return exactly(pairs);
  return {.at_least = pairs, .at_most = 3 * pairs, .seconds_more = 10};
}

Result<Paired> measure(const Context& context, const Rate& engine, const Rate& limit,
                       const Pairs& pairs) {
  CKPT_TRY(warm_up(context, engine, limit));
  CKPT_ASSIGN(const int engine_repeats, repeats_for(context, engine));
  CKPT_ASSIGN(const int limit_repeats, repeats_for(context, limit));
  const auto per_second = [&](const Rate& rate, int repeats) -> Result<double> {
    CKPT_ASSIGN(const double seconds, seconds_of(context.queue, rate, repeats));
    return rate.units_per_call * repeats / std::max(seconds, 1e-9);
  };
  Contest contest;
  contest.prepare = [] { return Status(); };
  contest.limit = [&] { return per_second(limit, limit_repeats); };
  contest.engine = [&] { return per_second(engine, engine_repeats); };
  contest.progress = [](const std::string&) {};
  return measure_pairs(pairs, contest);
}

}  // namespace

void compare(const Context& context, Row row, const Rate& engine, const Rate& limit) {
  if (context.settings.skip.contains(row.what)) return;
  context.progress(row.what + " ...");
  if (context.settings.tiny) row.pass_ratio = 0;  // figures of --tiny mean nothing
  const Result<Paired> paired = measure(context, engine, limit, pairs_for(context, row));
  if (paired.ok()) return context.found(measured(std::move(row), *paired));
  row.verdict = "fail";
  row.reason = paired.error().message;
  context.found(row);
  if (ckpt::kernels::device_is_lost()) throw DeviceLost(row.reason);
}

Result<DeviceArray<std::byte>> random_memory(const Context& context, uint64_t bytes) {
  constexpr uint64_t kBlockBytes = 4 << 20;
  std::mt19937_64 random(context.settings.seed);
  std::vector<uint64_t> block(std::min(bytes, kBlockBytes) / sizeof(uint64_t) + 1);
  for (uint64_t& word : block) word = random();
  CKPT_ASSIGN(auto memory, DeviceArray<std::byte>::make(bytes));
  for (uint64_t at = 0; at < bytes; at += kBlockBytes) {
    context.queue.upload(memory.data() + at, block.data(), std::min(bytes - at, kBlockBytes));
  }
  CKPT_TRY(synchronize(context.queue));
  return memory;
}

Result<Rate> device_copy(const Context& context, uint64_t bytes) {
  struct Both {
    DeviceArray<std::byte> from, to;
  };
  auto both = std::make_shared<Both>();
  CKPT_ASSIGN(both->from, random_memory(context, bytes));
  CKPT_ASSIGN(both->to, random_memory(context, bytes));
  CudaQueue& queue = context.queue;
  return Rate{.units_per_call = static_cast<double>(bytes) / 1e9, .call = [both, bytes, &queue] {
                queue.note(cudaMemcpyAsync(both->to.data(), both->from.data(), bytes,
                                           cudaMemcpyDeviceToDevice, queue.stream()),
                           "a copy on the device");
                return Status();
              }};
}

Result<Rate> host_copy(const Context& context, uint64_t bytes, Direction direction) {
  struct Both {
    PinnedArray<std::byte> host;
    DeviceArray<std::byte> device;
  };
  auto both = std::make_shared<Both>();
  CKPT_ASSIGN(both->host, PinnedArray<std::byte>::make(bytes));
  CKPT_ASSIGN(both->device, random_memory(context, bytes));
  CudaQueue& queue = context.queue;
  const bool to_host = direction == Direction::kToHost;
  return Rate{.units_per_call = static_cast<double>(bytes) / 1e9,
              .call = [both, bytes, to_host, &queue] {
                const auto kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
                void* const to = to_host ? both->host.data() : both->device.data();
                const void* const from = to_host ? both->device.data() : both->host.data();
                queue.note(cudaMemcpyAsync(to, from, bytes, kind, queue.stream()), "a host copy");
                return Status();
              }};
}

}  // namespace bench::gpu
