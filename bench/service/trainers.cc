#include "bench/service/trainers.h"

#include <algorithm>
#include <chrono>

#include "bench/common/rank_threads.h"
#include "bench/common/scratch.h"
#include "formats/base/bytes.h"
#include "formats/base/checked.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::Result;
using ckpt::Status;

namespace {

constexpr uint32_t kTimeoutMs = 120'000;
constexpr uint64_t kRestoreSlabs = 2;  // per arena
// Distance of the changed values: small enough to change every piece that a unit may be cut into.
constexpr uint64_t kChangedEveryBytes = 64u << 10;

}  // namespace

Result<std::unique_ptr<Trainers>> Trainers::open(const Options& options) {
  std::unique_ptr<Trainers> trainers(new Trainers(options));
  CKPT_TRY(trainers->open_ranks());
  return trainers;
}

uint64_t Trainers::arena_bytes(const Options& options) {
  const uint64_t share = options.bytes / options.ranks;
  return options.ranks *
         (ckpt::base::align_up(share, options.slab_bytes) + kRestoreSlabs * options.slab_bytes);
}

Trainers::~Trainers() {
  for (RankState& rank : ranks_) {
    if (rank.session != nullptr) ckpt_close(rank.session);
  }
}

Status Trainers::open_ranks() {
  const uint64_t share = options_.bytes / options_.ranks;
  const uint64_t units_per_rank = share / options_.unit_bytes;
  if (units_per_rank == 0 || share % options_.unit_bytes != 0) {
    return ckpt::make_error(ErrorCode::kInvalidArgument,
                            "{} bytes over {} ranks are not whole units of {}", options_.bytes,
                            options_.ranks, options_.unit_bytes);
  }
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    for (uint64_t i = 0; i < units_per_rank; ++i) {
      const auto unit = static_cast<uint32_t>(units_.size());
      units_.push_back(unit);
      fragments_.push_back(
          {.rank = rank, .unit = unit, .offset = 0, .length = options_.unit_bytes});
    }
  }
  ranks_.resize(options_.ranks);
  return on_all_ranks(options_.ranks, [this](uint32_t rank) { return open_rank(rank); });
}

Status Trainers::open_rank(uint32_t rank) {
  const uint64_t share = options_.bytes / options_.ranks;
  RankState& state = ranks_[rank];
  state.state = ckptd::AlignedBuffer(share);
  fill_random(state.state.bytes(), rank + 1);

  ckpt_open_options open = CKPT_INIT(ckpt_open_options);
  open.socket = options_.socket.c_str();
  open.run = "bench";
  open.client_name = "ckptbench";
  open.arena_bytes = arena_bytes(options_) / options_.ranks;
  open.slab_bytes = options_.slab_bytes;
  char error[512] = "";
  const auto start = std::chrono::steady_clock::now();
  const ckpt_status opened = ckpt_open(&open, &state.session, error, sizeof(error));
  const std::chrono::duration<double> opening = std::chrono::steady_clock::now() - start;
  state.open_seconds = opening.count();
  if (opened != CKPT_OK) return ckpt::make_error(static_cast<ErrorCode>(opened), "{}", error);

  std::vector<std::string> names;
  names.reserve(units_.size());
  for (const uint32_t unit : units_) names.push_back(fmt::format("bench.{}", unit));
  std::vector<ckpt_unit> units;
  units.reserve(names.size());
  for (const std::string& name : names) {
    units.push_back({.name = name.c_str(),
                     .layer = -1,
                     .expert = -1,
                     .part = nullptr,
                     .bytes = options_.unit_bytes,
                     .tensors = nullptr,
                     .tensor_count = 0});
  }
  CKPT_TRY(
      checked(ckpt_register_units(state.session, units.data(), units.size(), nullptr, kTimeoutMs),
              state.session));
  if (!options_.join) return {};
  ckpt_join_options options = CKPT_INIT(ckpt_join_options);
  options.rank = rank;
  options.size = options_.ranks;
  options.resume = CKPT_RESUME_START;
  options.timeout_ms = kTimeoutMs;
  ckpt_epoch epoch = CKPT_INIT(ckpt_epoch);
  return checked(ckpt_join(state.session, &options, &epoch), state.session);
}

Status Trainers::save_rank(uint32_t rank, uint64_t step, Saved* saved) {
  const RankState& state = ranks_[rank];
  ckpt_snapshot_options options = CKPT_INIT(ckpt_snapshot_options);
  options.step = step;
  options.units = units_.data();
  options.unit_count = units_.size();
  options.fragments = fragments_.data();
  options.fragment_count = fragments_.size();
  options.timeout_ms = kTimeoutMs;
  ckpt_snapshot* snapshot = nullptr;
  CKPT_TRY(checked(ckpt_snapshot_begin(state.session, &options, &snapshot), state.session));
  const std::unique_ptr<ckpt_snapshot, void (*)(ckpt_snapshot*)> owner(snapshot,
                                                                       ckpt_snapshot_free);
  const std::byte* from = state.state.bytes().data();
  for (const ckpt_fragment& fragment : fragments_) {
    if (fragment.rank != rank) continue;
    CKPT_TRY(checked(ckpt_snapshot_write(snapshot, fragment.unit, 0, from, fragment.length),
                     state.session));
    from += fragment.length;
  }
  CKPT_TRY(checked(ckpt_snapshot_end(snapshot), state.session));
  // Query before the wait below: a trainer would not wait, and the wait would count as stall.
  ckpt_snapshot_info info = CKPT_INIT(ckpt_snapshot_info);
  CKPT_TRY(checked(ckpt_snapshot_query(snapshot, &info), state.session));
  CKPT_TRY(checked(ckpt_snapshot_wait(snapshot, CKPT_LEVEL_DURABLE, kTimeoutMs), state.session));
  saved->stall_seconds = static_cast<double>(info.stall_ns) / 1e9;
  saved->wait_seconds = static_cast<double>(info.wait_ns) / 1e9;
  return {};
}

// Changes every piece, as a training step does, so that no fragment is deduplicated.
void Trainers::change_state(uint64_t step) {
  for (RankState& rank : ranks_) {
    const ckpt::MutableByteView bytes = rank.state.bytes();
    for (uint64_t at = 0; at < bytes.size(); at += kChangedEveryBytes) {
      ckpt::base::store(bytes.data() + at, step);
    }
  }
}

Result<Trainers::Saved> Trainers::save(uint64_t step) {
  change_state(step);
  std::vector<Saved> each(options_.ranks);
  const auto start = std::chrono::steady_clock::now();
  CKPT_TRY(on_all_ranks(options_.ranks,
                        [&](uint32_t rank) { return save_rank(rank, step, &each[rank]); }));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  Saved saved = *std::max_element(each.begin(), each.end(), [](const Saved& a, const Saved& b) {
    return a.stall_seconds < b.stall_seconds;
  });
  saved.seconds = elapsed.count();
  return saved;
}

Status Trainers::restore_rank(uint32_t rank, uint64_t step) {
  RankState& state = ranks_[rank];
  std::byte* to = state.restored.bytes().data();
  std::vector<ckpt_range> ranges;
  ranges.reserve(fragments_.size() / options_.ranks);
  for (const ckpt_fragment& fragment : fragments_) {
    if (fragment.rank != rank) continue;
    ranges.push_back(
        {.unit = fragment.unit, .offset = fragment.offset, .length = fragment.length, .data = to});
    to += fragment.length;
  }
  ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
  options.step = step;
  options.exact = 1;
  options.timeout_ms = kTimeoutMs;
  return checked(ckpt_restore_read(state.session, &options, ranges.data(), ranges.size(), nullptr),
                 state.session);
}

Result<double> Trainers::restore(uint64_t step) {
  for (RankState& rank : ranks_) {
    if (rank.restored.bytes().empty()) {
      rank.restored = ckptd::AlignedBuffer(rank.state.bytes().size());
    }
  }
  const auto start = std::chrono::steady_clock::now();
  CKPT_TRY(on_all_ranks(options_.ranks, [&](uint32_t rank) { return restore_rank(rank, step); }));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

Status Trainers::check_restored(uint64_t step) {
  change_state(step);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (std::ranges::equal(ranks_[rank].state.bytes(), ranks_[rank].restored.bytes())) continue;
    return ckpt::make_error(ErrorCode::kCorrupt, "rank {}: what came back is not what was saved",
                            rank);
  }
  return {};
}

}  // namespace bench
