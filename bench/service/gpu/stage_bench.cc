// Staging of a whole snapshot from scattered device memory into the arena by the client's stager,
// and restore by its restorer. Each is compared with one plain copy of the same size to or from
// pinned memory. One plain copy into the arena shows what the arena's pages cost.
#include <cuda_runtime.h>

#include <cstring>

#include "bench/service/gpu/benches.h"
#include "bench/service/gpu/memory_sink.h"
#include "client/src/cuda/restorer.h"
#include "client/src/cuda/stager.h"
#include "formats/base/crc32c.h"

namespace bench::gpu {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;
using ckpt::kernels::DeviceArray;
using ckpt::lib::PinnedArena;
using ckpt::lib::RestoreBuffers;
using ckpt::lib::Restorer;
using ckpt::lib::Stager;

namespace {

constexpr uint32_t kTimeoutMs = 60'000;

struct Staging {
  std::unique_ptr<MemorySink> sink;
  std::unique_ptr<PinnedArena> arena;
  DeviceArray<std::byte> state, restored;
  std::vector<ckpt_cuda_piece> pieces;
  std::vector<ckpt_cuda_destination> destinations;  // every unit, in `restored`
  uint64_t unit_bytes = 0;
  // Last members: their destructors wait for copies out of and into the members above.
  std::unique_ptr<RestoreBuffers> buffers;
  std::unique_ptr<Stager> stager;
};

// Stages one snapshot and waits until all of it is in the arena.
Status stage(Staging& staging, SinkSnapshot& snapshot, ckpt::kernels::CudaQueue& queue) {
  CKPT_TRY(staging.stager->stage(handle(snapshot), staging.pieces, queue.stream()));
  return staging.stager->drain(kTimeoutMs);
}

// Restores the snapshot and waits until all of it is on the device. Does what ckpt_cuda_restore
// does, but reuses the queues and the memory of the previous restore.
Status restore(Staging& staging, const SinkSnapshot& snapshot, ckpt::kernels::CudaQueue& queue) {
  Restorer restorer(handle(*staging.sink), *staging.arena, *staging.buffers,
                    {.device = queue.device(), .timeout_ms = kTimeoutMs, .cufile = {}});
  SinkRestore windows = begin_restore(snapshot);
  CKPT_TRY(restorer.run(handle(windows), staging.destinations, queue.stream()));
  if (windows.mismatches == 0) return {};
  return make_error(ErrorCode::kCorrupt, "restore: {} pieces do not have their CRC",
                    windows.mismatches);
}

// Checks that the restored bytes equal the staged state.
Status check_restored(const Staging& staging, ckpt::kernels::CudaQueue& queue) {
  std::vector<std::byte> state(staging.state.size()), restored(state.size());
  CKPT_TRY(download(queue, state.data(), staging.state.data(), state.size()));
  CKPT_TRY(download(queue, restored.data(), staging.restored.data(), restored.size()));
  if (state == restored) return {};
  return make_error(ErrorCode::kCorrupt, "restore: other bytes on the device");
}

// Checks that the arena holds the bytes of the device and that each place has its right CRC.
Status check(const Staging& staging, const SinkSnapshot& snapshot,
             ckpt::kernels::CudaQueue& queue) {
  std::vector<std::byte> state(staging.state.size());
  CKPT_TRY(download(queue, state.data(), staging.state.data(), state.size()));
  uint64_t bytes = 0;
  for (const SinkSnapshot::Filled& place : snapshot.places) {
    const std::byte* const from = state.data() + place.unit * staging.unit_bytes + place.offset;
    if (std::memcmp(place.memory.data(), from, place.memory.size()) != 0 ||
        ckpt::base::crc32c(place.memory) != place.crc32c) {
      return make_error(ErrorCode::kCorrupt, "staging: unit {} at {}: other bytes in the arena",
                        place.unit, place.offset);
    }
    bytes += place.memory.size();
  }
  if (snapshot.ended && bytes == state.size()) return {};
  return make_error(ErrorCode::kCorrupt, "staging: {} of {} bytes are in the arena", bytes,
                    state.size());
}

Result<std::shared_ptr<Staging>> prepare(const Context& context) {
  const bool tiny = context.settings.tiny;
  auto staging = std::make_shared<Staging>();
  const uint64_t slab_bytes = tiny ? 256 << 10 : ckpt::kSlabBytesDefault;
  // Units of 3 tensors, not a multiple of a chunk. The sink keeps all units until the end.
  const uint64_t tensor_bytes = tiny ? 20 << 10 : 6 << 20;
  staging->unit_bytes = 3 * tensor_bytes;
  const uint64_t units =
      std::max<uint64_t>(2, context.settings.payload_bytes / staging->unit_bytes);
  const uint64_t bytes = units * staging->unit_bytes;
  const auto slabs = static_cast<uint32_t>(bytes / (slab_bytes / 2) + 2);
  CKPT_ASSIGN(staging->sink, make_sink(slab_bytes, slabs));
  staging->arena = std::make_unique<PinnedArena>(
      handle(*staging->sink), PinnedArena::Options{.device = context.queue.device()});
  CKPT_ASSIGN(staging->state, random_memory(context, bytes));
  CKPT_ASSIGN(staging->restored, DeviceArray<std::byte>::make(bytes));
  for (uint32_t unit = 0; unit < units; ++unit) {
    const uint64_t first = unit * staging->unit_bytes;
    for (uint64_t at = 0; at < staging->unit_bytes; at += tensor_bytes) {
      staging->pieces.push_back({unit, at, staging->state.data() + first + at, tensor_bytes});
    }
    staging->destinations.push_back(
        {unit, 0, staging->restored.data() + first, staging->unit_bytes});
  }
  Stager::Options options{.device = context.queue.device()};
  if (tiny) {
    options.gather_bytes = 256 << 10;
    options.chunk_bytes = 64 << 10;
    options.direct_bytes = 8 << 10;
  }
  CKPT_ASSIGN(staging->buffers, RestoreBuffers::make(options.device, kTimeoutMs));
  CKPT_ASSIGN(staging->stager, Stager::open(handle(*staging->sink), *staging->arena, options));
  return staging;
}

// One plain copy of `bytes` of the state into the arena, whose pages the session has registered.
// Overwrites the snapshot in the arena.
Rate arena_copy(const std::shared_ptr<Staging>& staging, uint64_t bytes,
                ckpt::kernels::CudaQueue& queue) {
  CKPT_ASSERT(bytes <= staging->sink->arena.size());
  return {.units_per_call = static_cast<double>(bytes) / 1e9, .call = [staging, bytes, &queue] {
            queue.note(cudaMemcpyAsync(staging->sink->arena.data(), staging->state.data(), bytes,
                                       cudaMemcpyDeviceToHost, queue.stream()),
                       "a copy into the arena");
            return Status();
          }};
}

}  // namespace

Status bench_staging(const Context& context) {
  CKPT_ASSIGN(const auto staging, prepare(context));
  auto& queue = context.queue;
  const auto first = std::make_shared<SinkSnapshot>(begin_snapshot(*staging->sink));
  CKPT_TRY(stage(*staging, *first, queue));
  CKPT_TRY(check(*staging, *first, queue));
  CKPT_TRY(restore(*staging, *first, queue));
  CKPT_TRY(check_restored(*staging, queue));
  const uint64_t bytes = staging->state.size();
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  Row row{.what = "device to arena",
          .shape = fmt::format("{} tensors, {} bytes, in-process sink instead of a daemon",
                               staging->pieces.size(), bytes),
          .unit = "GB/s",
          .limit_name = "a plain copy to pinned memory",
          .pass_ratio = 0.95,
          .must = true,
          .paired = {},
          .verdict = {},
          .reason = {}};
  const Rate staged{.units_per_call = gigabytes, .call = [staging, &queue] {
                      SinkSnapshot snapshot = begin_snapshot(*staging->sink);
                      return stage(*staging, snapshot, queue);
                    }};
  {
    CKPT_ASSIGN(const Rate copy, host_copy(context, bytes, Direction::kToHost));
    compare(context, row, staged, copy);
  }
  // The slabs hold the same bytes at the same places as after the first snapshot.
  const Rate restored{.units_per_call = gigabytes, .call = [staging, first, &queue] {
                        return restore(*staging, *first, queue);
                      }};
  row.pass_ratio = 0;
  {
    CKPT_ASSIGN(const Rate copy, host_copy(context, bytes, Direction::kToDevice));
    row.what = "arena to device";
    row.limit_name = "a plain copy from pinned memory";
    compare(context, row, restored, copy);
  }
  CKPT_ASSIGN(const Rate copy, host_copy(context, bytes, Direction::kToHost));
  row.what = "plain copy into the arena";
  row.shape = fmt::format("{} bytes, registered shared memory", bytes);
  row.limit_name = "the same copy into memory of cudaMallocHost";
  compare(context, row, arena_copy(staging, bytes, queue), copy);
  return {};
}

}  // namespace bench::gpu
