#include "bench/research/pec_ranks.h"

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/common/rank_threads.h"
#include "bench/common/scratch.h"
#include "formats/base/ids.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::Result;
using ckpt::Status;

namespace {

constexpr uint32_t kLargeSaveTimeoutMs = 600'000;
constexpr uint64_t kPoolBytes = 64ull << 20;
constexpr uint64_t kWriteBytes = 4ull << 20;
// The daemon keeps two slabs of an arena for restores; one more is not full.
constexpr uint64_t kSlabsNotForSnapshots = 3;

// Source of a write in the pool: a different place for each unit, offset and step.
uint64_t pool_offset(const moetrain::Share& share, uint64_t at, uint64_t step) {
  uint64_t mixed = (share.unit + 1) * 0x9e3779b97f4a7c15ull ^ (share.offset + at) ^ step << 40;
  mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
  return (mixed >> 20) % ((kPoolBytes - kWriteBytes) / 64) * 64;
}

}  // namespace

Result<std::unique_ptr<PecRanks>> PecRanks::open(const Options& options,
                                                 const std::vector<PecUnit>& units) {
  std::unique_ptr<PecRanks> ranks(new PecRanks(options, units));
  CKPT_TRY(ranks->make_pool());
  ranks->ranks_.resize(options.ranks);
  CKPT_TRY(on_all_ranks(options.ranks, [&](uint32_t rank) { return ranks->join(rank); }));
  return ranks;
}

PecRanks::~PecRanks() {
  for (RankState& rank : ranks_) {
    if (rank.session != nullptr) ckpt_close(rank.session);
  }
}

// Random floats that are all finite: with the highest exponent bit off none is NaN or infinite.
Status PecRanks::make_pool() {
  pool_ = ckptd::AlignedBuffer(kPoolBytes);
  fill_random(pool_.bytes(), 1);
  for (uint64_t at = 0; at < kPoolBytes; at += sizeof(uint32_t)) {
    uint32_t word = 0;
    std::memcpy(&word, pool_.bytes().data() + at, sizeof word);
    word &= ~(uint32_t{1} << 30);
    std::memcpy(pool_.bytes().data() + at, &word, sizeof word);
  }
  return {};
}

Status PecRanks::join(uint32_t rank) {
  ckpt_open_options open = CKPT_INIT(ckpt_open_options);
  open.socket = options_.socket.c_str();
  open.run = kPecRun;
  open.client_name = "ckptbench";
  open.arena_bytes = options_.arena_bytes;
  open.slab_bytes = options_.slab_bytes;
  open.alarms = options_.alarms;
  char error[512] = "";
  ckpt_session*& session = ranks_[rank].session;
  const ckpt_status opened = ckpt_open(&open, &session, error, sizeof(error));
  if (opened != CKPT_OK) return ckpt::make_error(static_cast<ErrorCode>(opened), "{}", error);

  std::vector<uint64_t> shapes;
  shapes.reserve(units_.size());
  std::vector<ckpt_tensor> tensors;
  tensors.reserve(units_.size());
  for (const PecUnit& unit : units_) shapes.push_back(unit.bytes / sizeof(float));
  for (const uint64_t& shape : shapes) tensors.push_back({"state", "F32", &shape, 1, 0});
  std::vector<ckpt_unit> units;
  for (size_t i = 0; i < units_.size(); ++i) {
    const PecUnit& unit = units_[i];
    units.push_back({.name = unit.name.c_str(),
                     .layer = unit.layer ? int64_t{*unit.layer} : -1,
                     .expert = unit.expert ? int64_t{*unit.expert} : -1,
                     .part = unit.optimizer ? "optimizer" : "weights",
                     .bytes = unit.bytes,
                     .tensors = &tensors[i],
                     .tensor_count = 1});
  }
  CKPT_TRY(checked(
      ckpt_register_units(session, units.data(), units.size(), nullptr, kLargeSaveTimeoutMs),
      session));
  ckpt_join_options options = CKPT_INIT(ckpt_join_options);
  options.rank = rank;
  options.size = options_.ranks;
  options.resume = CKPT_RESUME_START;
  options.timeout_ms = kLargeSaveTimeoutMs;
  ckpt_epoch epoch = CKPT_INIT(ckpt_epoch);
  return checked(ckpt_join(session, &options, &epoch), session);
}

Status PecRanks::write_share(ckpt_snapshot* snapshot, const moetrain::Share& share, uint64_t step) {
  for (uint64_t at = 0; at < share.length; at += kWriteBytes) {
    const uint64_t length = std::min(kWriteBytes, share.length - at);
    const std::byte* from = pool_.bytes().data() + pool_offset(share, at, step);
    const ckpt_status status =
        ckpt_snapshot_write(snapshot, share.unit, share.offset + at, from, length);
    CKPT_TRY(checked(status, ranks_[share.rank].session));
  }
  return {};
}

Status PecRanks::save_part(uint32_t rank, const PecPlan& part, uint64_t step) {
  RankState& state = ranks_[rank];
  std::vector<ckpt_fragment> fragments;
  fragments.reserve(part.shares.size());
  for (const moetrain::Share& share : part.shares) {
    fragments.push_back(
        {.rank = share.rank, .unit = share.unit, .offset = share.offset, .length = share.length});
  }
  ckpt_snapshot_options options = CKPT_INIT(ckpt_snapshot_options);
  options.step = step;
  options.units = part.units.data();
  options.unit_count = part.units.size();
  options.fragments = fragments.data();
  options.fragment_count = fragments.size();
  options.timeout_ms = kLargeSaveTimeoutMs;
  ckpt_snapshot* snapshot = nullptr;
  CKPT_TRY(checked(ckpt_snapshot_begin(state.session, &options, &snapshot), state.session));
  const std::unique_ptr<ckpt_snapshot, void (*)(ckpt_snapshot*)> owner(snapshot,
                                                                       ckpt_snapshot_free);
  for (const moetrain::Share& share : part.shares) {
    if (share.rank == rank) CKPT_TRY(write_share(snapshot, share, step));
  }
  CKPT_TRY(checked(ckpt_snapshot_end(snapshot), state.session));
  ckpt_snapshot_info info = CKPT_INIT(ckpt_snapshot_info);
  CKPT_TRY(checked(ckpt_snapshot_query(snapshot, &info), state.session));
  // Before the wait below, which a trainer leaves out and which counts as stall.
  state.stall_seconds += static_cast<double>(info.stall_ns) / 1e9;
  CKPT_TRY(checked(ckpt_snapshot_wait(snapshot, CKPT_LEVEL_DURABLE, kLargeSaveTimeoutMs),
                   state.session));
  CKPT_TRY(checked(ckpt_snapshot_query(snapshot, &info), state.session));
  if (info.alarms != nullptr) {
    return ckpt::make_error(ErrorCode::kFailedPrecondition, "step {}: {}", step, info.alarms);
  }
  state.bytes += info.bytes;
  return {};
}

Result<PecRanks::Saved> PecRanks::save(const PecPlan& plan) {
  const uint64_t room = options_.arena_bytes -
                        std::min(options_.arena_bytes, kSlabsNotForSnapshots * options_.slab_bytes);
  CKPT_ASSIGN(const std::vector<PecPlan> parts,
              split_plan(plan, options_.ranks, room, 2 * ckpt::kBlockBytes, units_));
  for (RankState& rank : ranks_) {
    rank.stall_seconds = 0;
    rank.bytes = 0;
  }
  const auto start = std::chrono::steady_clock::now();
  for (const PecPlan& part : parts) {
    ++step_;
    CKPT_TRY(
        on_all_ranks(options_.ranks, [&](uint32_t rank) { return save_part(rank, part, step_); }));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  Saved saved{.durable_seconds = elapsed.count(), .commits = parts.size()};
  for (const RankState& rank : ranks_) {
    saved.stall_seconds = std::max(saved.stall_seconds, rank.stall_seconds);
    saved.bytes_by_rank.push_back(rank.bytes);
  }
  return saved;
}

Result<uint64_t> PecRanks::segment_bytes_written() {
  ckpt_session* session = ranks_.front().session;
  char* text = nullptr;
  int exit_code = 0;
  CKPT_TRY(checked(ckpt_query(session, "status", nullptr, kLargeSaveTimeoutMs, &text, &exit_code),
                   session));
  const std::unique_ptr<char, void (*)(void*)> owner(text, ckpt_free);
  const auto status = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bytes = status.is_object() ? status.find("segment_bytes_written") : status.end();
  if (exit_code != 0 || bytes == status.end() || !bytes->is_number_unsigned()) {
    return ckpt::make_error(ErrorCode::kVersionMismatch,
                            "ckptd's status has no segment_bytes_written");
  }
  return bytes->get<uint64_t>();
}

}  // namespace bench
