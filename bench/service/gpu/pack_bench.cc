// pack and unpack, against a plain copy on the device and against the link to the host.
#include <algorithm>
#include <numeric>
#include <random>

#include "bench/service/gpu/benches.h"
#include "kernels/pack.h"

namespace bench::gpu {

using ckpt::Status;
using ckpt::kernels::ChecksumRun;
using ckpt::kernels::DeviceArray;
using ckpt::kernels::pack_table_bytes;
using ckpt::kernels::PackPiece;
using ckpt::kernels::PackRange;
using ckpt::kernels::PlannedPack;
using ckpt::kernels::unpack_table_bytes;
using ckpt::kernels::UnpackPiece;

namespace {

// A quarter of an A100's multiprocessors, one block on each: what a cap on a snapshot's kernels
// would leave them. The client has no cap; this row and "CRC by few blocks" show why.
constexpr unsigned kFewBlocks = 27;

// Uses tables that are already on the device, as in a snapshot or a restore.
struct OnDevice {
  PlannedPack planned;
  DeviceArray<std::byte> tables;
};

template <typename Plan>
Result<OnDevice> bring(const Context& context, size_t table_bytes, const Plan& plan) {
  std::vector<std::byte> tables(table_bytes);
  OnDevice there{.planned = plan(tables), .tables = {}};
  CKPT_ASSIGN(there.tables, DeviceArray<std::byte>::make(tables.size()));
  context.queue.upload(there.tables.data(), tables.data(), tables.size());
  return there;
}

// A state of scattered tensors of one size, in random order. A unit has `per_unit` of them, and one
// CRC.
struct Scattered {
  DeviceArray<std::byte> outside, buffer;
  DeviceArray<uint32_t> crc, mismatches;
  OnDevice pack, unpack, checksum;
  std::vector<PackPiece> pieces;
  std::vector<UnpackPiece> back;
  std::vector<PackRange> ranges;
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
  CKPT_ASSIGN(state->pack, bring(context, pack_table_bytes(tensors, units, state->bytes),
                                 [&](std::span<std::byte> tables) {
                                   return plan_pack(state->pieces, state->ranges, tables);
                                 }));
  return state;
}

// Packs once, for the CRCs that unpack needs.
Status plan_back(const Context& context, Scattered& state) {
  std::vector<uint32_t> expected(state.ranges.size());
  pack(context.queue, state.pack.planned, state.pack.tables.data(), state.buffer.data(),
       state.crc.data());
  CKPT_TRY(download(context.queue, expected.data(), state.crc.data(),
                    expected.size() * sizeof(uint32_t)));
  const size_t units = state.ranges.size();
  CKPT_ASSIGN(state.unpack,
              bring(context, unpack_table_bytes(state.back.size(), units, state.bytes),
                    [&](std::span<std::byte> tables) {
                      return plan_unpack(state.back, state.ranges, expected, tables);
                    }));
  std::vector<ChecksumRun> runs;
  runs.reserve(units);
  for (const PackRange& unit : state.ranges) {
    runs.push_back({state.buffer.data() + unit.offset, unit.bytes});
  }
  CKPT_ASSIGN(state.checksum,
              bring(context, pack_table_bytes(0, units, state.bytes),
                    [&](std::span<std::byte> tables) { return plan_checksums(runs, tables); }));
  return {};
}

// `call` queues the move of the whole state.
template <typename Call>
Rate rate_of(const std::shared_ptr<Scattered>& state, const Call& call) {
  return {.units_per_call = static_cast<double>(state->bytes) / 1e9, .call = [state, call] {
            call(*state);
            return Status();
          }};
}

// Times pack and unpack of one state.
Status bench_state(const Context& context, const std::string& name, uint64_t tensor_bytes,
                   uint64_t per_unit) {
  CKPT_ASSIGN(const auto state, scatter(context, tensor_bytes, per_unit));
  CKPT_TRY(plan_back(context, *state));
  auto& queue = context.queue;
  const auto packing_by = [&queue](unsigned blocks_max) {
    return [&queue, blocks_max](Scattered& s) {
      pack(queue, s.pack.planned, s.pack.tables.data(), s.buffer.data(), s.crc.data(), blocks_max);
    };
  };
  const Rate packing = rate_of(state, packing_by(0));
  const Rate packing_by_few = rate_of(state, packing_by(kFewBlocks));
  const Rate checking = rate_of(state, [&queue](Scattered& s) {
    checksum(queue, s.checksum.planned, s.checksum.tables.data(), s.crc.data());
  });
  const Rate unpacking = rate_of(state, [&queue](Scattered& s) {
    unpack(queue, s.unpack.planned, s.unpack.tables.data(), s.buffer.data(), s.crc.data(),
           s.mismatches.data());
  });
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
    row.pass_ratio = 0;
    row.what = "crc alone, " + name;
    compare(context, row, checking, copy);
    row.what = "unpack, " + name;  // reads everything twice: checks first, then scatters
    compare(context, row, unpacking, copy);
  }
  row.pass_ratio = 1;
  {
    CKPT_ASSIGN(const Rate link, host_copy(context, state->bytes, Direction::kToHost));
    row.what = "pack+crc / host link, " + name;
    row.limit_name = "a plain copy to pinned memory";
    compare(context, row, packing, link);
    row.what = fmt::format("pack+crc by {} blocks / host link, {}", kFewBlocks, name);
    compare(context, row, packing_by_few, link);
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
  // An expert's matrices, then small tensors of a model: norms, biases, slices.
  CKPT_TRY(bench_state(context, "matrices", tiny ? 96 << 10 : 6 << 20, 3));
  return bench_state(context, "small tensors", tiny ? 1 << 10 : 8 << 10, 64);
}

}  // namespace bench::gpu
