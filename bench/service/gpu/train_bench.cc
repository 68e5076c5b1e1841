// Speed of a training step on a GPU, with and without a snapshot of all experts at its boundary,
// and the share of the device's matrix rate that the step reaches.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/service/gpu/benches.h"
#include "bench/service/gpu/state_crc.h"
#include "bench/service/gpu/state_sink.h"
#include "bench/service/gpu/train_work.h"
#include "kernels/cuda/event.h"
#include "tests/trainer/training/training.h"
#include "trainer/device/cuda_device.h"

namespace bench::gpu {

using ckpt::Status;
using moetrain::Device;
using moetrain::Precision;
using moetrain::RankTraining;
using moetrain::TrainConfig;
using moetrain::WeightState;

namespace {

using Clock = std::chrono::steady_clock;

// The bound is 1.02 of a step's time, for a copy that fits behind the step.
constexpr double kRateMin = 1 / 1.02;
// Largest share of a step that a copy may take and still fit. The rest is a margin for times when
// the link is slower.
constexpr double kFits = 0.8;
// Steps are repeated until a sample takes this long. A single step is as noisy as the host.
constexpr double kSampleSeconds = 0.2;

// One plain copy to the host, of as many bytes as the state has.
struct PlainCopy {
  std::unique_ptr<ckpt::kernels::CudaQueue> queue;
  ckpt::kernels::CudaEvent begun;
  ckpt::kernels::DeviceArray<std::byte> from;
};

// One training rank and its sink. Members are in the order of their dependencies.
struct Session {
  TrainConfig config;  // read by the trainer at each step
  std::vector<uint8_t> text;
  std::unique_ptr<moetrain::Comm> comm;
  std::unique_ptr<Device> device;
  std::unique_ptr<RankTraining> training;
  std::unique_ptr<StateSink> sink;
  std::unique_ptr<StateCrc> crc;
  PlainCopy copy;
  unsigned few_blocks = 0;  // a quarter of the multiprocessors
};

TrainConfig config_for(bool tiny, Precision precision) {
  TrainConfig config;
  if (tiny) {
    config.model = {.hidden = 16,
                    .layers = 1,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 8,
                    .intermediate = 24,
                    .experts = 2,
                    .top_k = 1,
                    .seq_len = 8,
                    .rope_theta = 1e4};
    config.batch = 1;
  } else {
    config.model = {.hidden = 1024,
                    .layers = 2,
                    .heads = 16,
                    .kv_heads = 4,
                    .head_dim = 64,
                    .intermediate = 2048,
                    .experts = 8,
                    .top_k = 2,
                    .seq_len = 512,
                    .rope_theta = 1e4};
    config.batch = 8;
  }
  config.micro_batches = 1;
  config.precision = precision;
  config.schedule.learning_rate = 0;  // see same_step()
  return config;
}

// Runs one step until the device has completed it. Always the same step, from the same weights over
// the same text: other text would give the experts' products new shapes, which cost cuBLAS time.
Status same_step(Session& session, const RankTraining::BeforeWrite& before_write = {}) {
  session.training->progress().step = 0;
  return session.training->steps(1, before_write);
}

Status warm_up(Session& session, double seconds) {
  const auto begin = Clock::now();
  do {
    CKPT_TRY(same_step(session));
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return {};
}

Status prepare_copy(Session& session, int device) {
  CKPT_ASSIGN(session.copy.queue,
              ckpt::kernels::make_cuda_queue(
                  {.device = device, .priority = ckpt::kernels::CudaPriority::kLow}));
  CKPT_TRY(session.copy.begun.make());
  CKPT_ASSIGN(session.copy.from,
              ckpt::kernels::DeviceArray<std::byte>::make(session.sink->bytes()));
  return {};
}

Result<std::shared_ptr<Session>> open_session(const Context& context, Precision precision) {
  const bool tiny = context.settings.tiny;
  auto session = std::make_shared<Session>();
  session->config = config_for(tiny, precision);
  session->text = moetrain::sample_text(1 << 20);
  session->comm = std::move(moetrain::make_local_comms(1).front());
  CKPT_ASSIGN(session->device, moetrain::make_cuda_device(
                                   {.index = context.queue.device(), .precision = precision}));
  CKPT_ASSIGN(session->training,
              RankTraining::make(*session->device, *session->comm, session->config, session->text));
  StateSink::Options options;
  if (tiny)
    options = {.slab_bytes = 64 << 10,
               .gather_bytes = 64 << 10,
               .chunk_bytes = 16 << 10,
               .ahead_bytes = 16 << 10,
               .direct_bytes = 1 << 10};
  CKPT_ASSIGN(session->sink, StateSink::open(session->training->model(), options));
  CKPT_ASSIGN(session->crc, StateCrc::make(session->sink->pieces(), context.queue.device()));
  CKPT_TRY(prepare_copy(*session, context.queue.device()));
  cudaDeviceProp device{};
  context.queue.note(cudaGetDeviceProperties(&device, context.queue.device()), "asking a device");
  session->few_blocks = static_cast<unsigned>(std::max(1, device.multiProcessorCount / 4));
  CKPT_TRY(warm_up(*session, context.settings.warm_up_seconds));
  return session;
}

Status plain_step(Session& session) { return same_step(session); }

// One step with a snapshot of all state at its boundary, until the snapshot is in the arena.
Status step_with_snapshot(Session& session) {
  CKPT_TRY(session.sink->stage());
  CKPT_TRY(
      same_step(session, [&](const WeightState& state) { session.sink->before_write(state); }));
  return session.sink->drain();
}

// One step with a plain copy of as many bytes instead of a snapshot.
Status step_with_copy(Session& session) {
  const PlainCopy& copy = session.copy;
  CKPT_TRY(session.copy.begun.record(moetrain::cuda_queue(*session.device).stream()));
  CKPT_TRY(copy.begun.hold(copy.queue->stream()));
  copy.queue->note(cudaMemcpyAsync(session.sink->arena().data(), copy.from.data(), copy.from.size(),
                                   cudaMemcpyDeviceToHost, copy.queue->stream()),
                   "a plain copy");
  CKPT_TRY(same_step(session));
  return synchronize(*copy.queue);
}

// One step with a pass that computes the CRCs of all state instead of a snapshot. `blocks_max`: 0
// for many short blocks that fill the device; few blocks hold a quarter of its multiprocessors.
Status step_with_crc_by(Session& session, unsigned blocks_max) {
  CKPT_TRY(session.crc->begin(moetrain::cuda_queue(*session.device).stream(), blocks_max));
  CKPT_TRY(same_step(session));
  return session.crc->finish();
}
Status step_with_crc(Session& session) { return step_with_crc_by(session, 0); }
Status step_with_crc_by_few(Session& session) {
  return step_with_crc_by(session, session.few_blocks);
}

Status copy_alone(Session& session) {
  CKPT_TRY(session.sink->stage());
  return session.sink->drain();
}

// Duration of one call: the median of a few calls.
Result<double> seconds_of(Session& session, Status (*call)(Session&)) {
  constexpr int kCalls = 3;
  std::vector<double> seconds;
  CKPT_TRY(call(session));  // warm-up
  for (int i = 0; i < kCalls; ++i) {
    const auto begin = Clock::now();
    CKPT_TRY(call(session));
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return median(std::move(seconds));
}

struct Times {
  double step_seconds = 0;
  double copy_seconds = 0;
  bool fits() const { return copy_seconds <= kFits * step_seconds; }
};
Result<Times> measure_times(Session& session) {
  Times times;
  CKPT_ASSIGN(times.step_seconds, seconds_of(session, plain_step));
  CKPT_ASSIGN(times.copy_seconds, seconds_of(session, copy_alone));
  return times;
}

// Doubles the micro-batches until the copy fits behind a step, or until their number reaches its
// limit.
Result<Times> lengthen_step(Session& session) {
  constexpr uint32_t kMicroBatchesMax = 64;
  for (;;) {
    CKPT_ASSIGN(const Times times, measure_times(session));
    if (times.fits() || session.config.micro_batches >= kMicroBatchesMax) return times;
    session.config.micro_batches *= 2;
  }
}

std::string shape_of(const Session& session) {
  const moetrain::ModelConfig& model = session.config.model;
  return fmt::format(
      "{} layers of {} experts, top {}, hidden {}, intermediate {}, {} micro-batches of {} x {} "
      "tokens, {} bytes of state on the device, in-process sink instead of a daemon",
      model.layers, model.experts, model.top_k, model.hidden, model.intermediate,
      session.config.micro_batches, session.config.batch, model.seq_len, session.sink->bytes());
}

// Repeats a call, of a step each, for about kSampleSeconds.
Rate tokens_per_second(const Context& context, const std::shared_ptr<Session>& session,
                       const Times& times, Status (*call)(Session&)) {
  const double longest = std::max({times.step_seconds, times.copy_seconds, 1e-6});
  const int steps =
      context.settings.tiny ? 1 : static_cast<int>(std::ceil(kSampleSeconds / longest));
  return {.units_per_call = steps * static_cast<double>(session->config.tokens_per_step()) / 1e3,
          .call = [session, call, steps]() -> Status {
            for (int i = 0; i < steps; ++i) CKPT_TRY(call(*session));
            return {};
          }};
}

// `bounded`: the row has a pass ratio. Otherwise it is informative: a longer step is tried next.
void bench_snapshots(const Context& context, const std::shared_ptr<Session>& session,
                     const Times& times, const std::string& name, bool bounded) {
  Row row{.what = (bounded ? "step, snapshot each, " : "step shorter than its copy, ") + name,
          .shape = shape_of(*session),
          .unit = "ktok/s",
          .limit_name = "the same step without a snapshot",
          .pass_ratio = bounded ? kRateMin : 0,
          .can_show = times.fits(),
          .reason = fmt::format("the copy takes {:.1f} ms and {} behind a step of {:.1f} ms",
                                1e3 * times.copy_seconds, times.fits() ? "fits" : "does not fit",
                                1e3 * times.step_seconds)};
  compare(context, row, tokens_per_second(context, session, times, step_with_snapshot),
          tokens_per_second(context, session, times, plain_step));
}

// Row of one part of a snapshot, done alone beside a step.
void bench_part(const Context& context, const std::shared_ptr<Session>& session, const Times& times,
                const std::string& what, Status (*step)(Session&)) {
  compare(context,
          {.what = what,
           .shape = shape_of(*session),
           .unit = "ktok/s",
           .limit_name = "the same step without",
           .must = false},
          tokens_per_second(context, session, times, step),
          tokens_per_second(context, session, times, plain_step));
}

// Row of the time that the thread which queues the step's kernels spends on the snapshot.
Status bench_host_time(const Context& context, const std::shared_ptr<Session>& session,
                       const std::string& name) {
  Row row{.what = "snapshot, time of its calls, " + name,
          .shape = shape_of(*session),
          .unit = "us",
          .limit_name = "the step with the snapshot",
          .must = false};
  if (context.settings.skip.contains(row.what)) return {};
  context.progress(row.what + " ...");
  std::vector<double> call_us, step_us;
  StateSink::HostSeconds sum;
  for (int i = 0; i < context.settings.pairs; ++i) {
    (void)session->sink->take_host_seconds();
    const auto begin = Clock::now();
    CKPT_TRY(step_with_snapshot(*session));
    step_us.push_back(1e6 * std::chrono::duration<double>(Clock::now() - begin).count());
    const StateSink::HostSeconds calls = session->sink->take_host_seconds();
    call_us.push_back(1e6 * calls.total());
    sum = {sum.stage + calls.stage, sum.advance + calls.advance,
           sum.before_write + calls.before_write, sum.drain + calls.drain};
  }
  const double us = 1e6 / context.settings.pairs;
  row.reason = fmt::format("stage {:.0f}, advance {:.0f}, before_write {:.0f}, drain {:.0f} us",
                           us * sum.stage, us * sum.advance, us * sum.before_write, us * sum.drain);
  context.found(measured(row, compared(std::move(step_us), std::move(call_us))));
  return {};
}

Status bench_flops(const Context& context, const std::shared_ptr<Session>& session,
                   const std::string& name) {
  const bool bf16 = session->config.precision == Precision::kBf16;
  CKPT_ASSIGN(const Rate product, large_product(context, bf16));
  const double flops = step_flops(session->config.model, session->config.tokens_per_step());
  compare(context,
          {.what = "step, share of products, " + name,
           .shape = shape_of(*session),
           .unit = "TFLOP/s",
           .limit_name = "one large product of cuBLAS in " + name,
           .must = false},
          {.units_per_call = flops / 1e12, .call = [session] { return plain_step(*session); }},
          product);
  return {};
}

Status bench_precision(const Context& context, Precision precision) {
  const std::string name = precision == Precision::kBf16 ? "bf16" : "fp32";
  CKPT_ASSIGN(const auto session, open_session(context, precision));
  CKPT_ASSIGN(Times times, measure_times(*session));
  if (!times.fits() && !context.settings.tiny) {
    bench_snapshots(context, session, times, name, /*bounded=*/false);
    CKPT_ASSIGN(times, lengthen_step(*session));
  }
  bench_snapshots(context, session, times, name, /*bounded=*/true);
  CKPT_TRY(bench_host_time(context, session, name));
  bench_part(context, session, times, "step, plain copy of as much each, " + name, step_with_copy);
  bench_part(context, session, times, "step, CRC of all state each, " + name, step_with_crc);
  bench_part(context, session, times, "step, CRC by few blocks each, " + name,
             step_with_crc_by_few);
  return bench_flops(context, session, name);
}

}  // namespace

Status bench_training(const Context& context) {
  CKPT_TRY(bench_precision(context, Precision::kFp32));
  return bench_precision(context, Precision::kBf16);
}

}  // namespace bench::gpu
