// pack and unpack, against a plain copy on the device and against the link to the host.
#include <algorithm>
#include <numeric>
#include <random>

#include "bench/gpu/benches.h"
#include "kernels/pack.h"

namespace bench::gpu {

using ckpt::Status;
using ckpt::kernels::DeviceArray;
using ckpt::kernels::PackPiece;
using ckpt::kernels::PackRange;
using ckpt::kernels::UnpackPiece;

namespace {

// A state as scattered tensors of one size, in random order; `per_unit` of them are a unit, which
// has a CRC of its own.
struct Scattered {
  DeviceArray<std::byte> outside, buffer;
  DeviceArray<std::byte> tables;  // of the pack: as when a snapshot is staged, they are there
  DeviceArray<uint32_t> crc, mismatches;
  ckpt::kernels::PlannedPack planned;
  std::vector<PackPiece> pieces;
  std::vector<UnpackPiece> back;
  std::vector<PackRange> ranges;
  std::vector<uint32_t> expected;  // what pack found
  uint64_t bytes = 0;
};

Result<std::shared_ptr<Scattered>> scatter(const Context& context, uint64_t tensor_bytes,
                                           uint64_t per_unit) {
  auto state = std::make_shared<Scattered>();
  const uint64_t units =
      std::max<uint64_t>(1, context.settings.payload_bytes / (tensor_bytes * per_unit));
  const uint64_t tensors = units * per_unit;
  state->bytes = tensors * tensor_bytes;
  CKPT_ASSIGN(state->outside, random_memory(context, state->bytes));
  CKPT_ASSIGN(state->buffer, random_memory(context, state->bytes));
  CKPT_ASSIGN(state->crc, DeviceArray<uint32_t>::make(units));
  CKPT_ASSIGN(state->mismatches, DeviceArray<uint32_t>::make(1));
  std::vector<uint64_t> order(tensors);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::mt19937_64 random(context.settings.seed);
  std::shuffle(order.begin(), order.end(), random);
  for (uint64_t i = 0; i < tensors; ++i) {
    std::byte* const at = state->outside.data() + order[i] * tensor_bytes;
    state->pieces.push_back({at, i * tensor_bytes, tensor_bytes});
    state->back.push_back({at, i * tensor_bytes, tensor_bytes});
  }
  const uint64_t unit_bytes = per_unit * tensor_bytes;
  for (uint64_t i = 0; i < units; ++i) state->ranges.push_back({i * unit_bytes, unit_bytes});
  state->expected.resize(units);
  std::vector<std::byte> tables(ckpt::kernels::pack_table_bytes(tensors, units, state->bytes));
  state->planned = plan_pack(state->pieces, state->ranges, tables);
  CKPT_ASSIGN(state->tables, DeviceArray<std::byte>::make(tables.size()));
  context.queue.upload(state->tables.data(), tables.data(), tables.size());
  return state;
}

// Times both ways of one state.
Status bench_state(const Context& context, const std::string& name, uint64_t tensor_bytes,
                   uint64_t per_unit) {
  CKPT_ASSIGN(const auto state, scatter(context, tensor_bytes, per_unit));
  auto& queue = context.queue;
  const double gigabytes = static_cast<double>(state->bytes) / 1e9;
  const Rate packing{.units_per_call = gigabytes, .call = [state, &queue] {
                       pack(queue, state->planned, state->tables.data(), state->buffer.data(),
                            state->crc.data());
                       return Status();
                     }};
  CKPT_TRY(packing.call());
  CKPT_TRY(download(queue, state->expected.data(), state->crc.data(),
                    state->expected.size() * sizeof(uint32_t)));
  const Rate unpacking{.units_per_call = gigabytes, .call = [state, &queue] {
                         unpack(queue, state->back, state->ranges, state->expected,
                                state->buffer.data(), state->crc.data(), state->mismatches.data());
                         return Status();
                       }};
  Row row{.what = "pack+crc, " + name,
          .shape = fmt::format("{} pieces of {} bytes, {} of them a unit", state->pieces.size(),
                               tensor_bytes, per_unit),
          .unit = "GB/s",
          .limit_name = "cudaMemcpyAsync on the device, bytes counted once",
          .pass_ratio = 0.6,
          .must = true,
          .paired = {},
          .verdict = {},
          .reason = {}};
  {
    CKPT_ASSIGN(const Rate copy, device_copy(context, state->bytes));
    compare(context, row, packing, copy);
    row.what = "unpack, " + name;
    row.pass_ratio = 0;  // it reads everything twice: checks first, then scatters
    compare(context, row, unpacking, copy);
  }
  row.pass_ratio = 1;
  {
    CKPT_ASSIGN(const Rate link, host_copy(context, state->bytes, Direction::kToHost));
    row.what = "pack+crc / host link, " + name;
    row.limit_name = "a plain copy to pinned memory";
    compare(context, row, packing, link);
  }
  CKPT_ASSIGN(const Rate link, host_copy(context, state->bytes, Direction::kToDevice));
  row.what = "unpack / host link, " + name;
  row.limit_name = "a plain copy from pinned memory";
  compare(context, row, unpacking, link);
  uint32_t mismatches = 0;
  CKPT_TRY(download(queue, &mismatches, state->mismatches.data(), sizeof mismatches));
  if (mismatches == 0) return {};
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "unpack, {}: {} units do not have their CRC",
                          name, mismatches);
}

}  // namespace

Status bench_pack(const Context& context) {
  const bool tiny = context.settings.tiny;
  // Matrices of an expert, and what else a model has: norms, biases, slices.
  CKPT_TRY(bench_state(context, "matrices", tiny ? 96 << 10 : 6 << 20, 3));
  return bench_state(context, "small tensors", tiny ? 1 << 10 : 8 << 10, 64);
}

}  // namespace bench::gpu
