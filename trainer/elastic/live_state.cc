#include "trainer/elastic/live_state.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// For one round of moves, on each rank: far below what a rank's experts take.
constexpr uint64_t kRoundBytes = 64u << 20;
// Before each item: its CRC32C, in 8 bytes so that what follows stays aligned.
constexpr size_t kItemHeaderBytes = 8;
// What comes damaged so often does not come from a bit that flipped once.
constexpr uint32_t kDamagedInARowMax = 3;

std::array<Tensor*, 3> state_of(Parameter& parameter) {
  return {&parameter.value, &parameter.m, &parameter.v};
}

uint64_t bytes_of(const std::vector<Parameter*>& parameters) {
  uint64_t bytes = 0;
  for (Parameter* parameter : parameters) {
    for (const Tensor* tensor : state_of(*parameter)) bytes += tensor->bytes();
  }
  return bytes;
}

uint64_t expert_bytes(const ModelConfig& shape) {
  uint64_t elements = 0;
  for (const ParameterSpec& spec : expert_parameters(shape, 0, 0)) elements += spec.elements();
  return 3 * elements * sizeof(float);
}

Expert make_expert(Device& device, const ModelConfig& shape, uint32_t layer, uint32_t expert) {
  auto specs = expert_parameters(shape, layer, expert);
  return {layer, expert, Parameter(device, std::move(specs[0])),
          Parameter(device, std::move(specs[1])), Parameter(device, std::move(specs[2]))};
}

}  // namespace

ExpertGrid LiveState::grid() const {
  const ModelConfig& shape = parts_.model.config();
  return {shape.layers, shape.experts};
}

void LiveState::is_whole() {
  has_state_ = true;
  changes_ = 0;
  pending_.reset();
  pool_.clear();
  taken_out_ = false;
  missing_.clear();
}

void LiveState::forget() {
  has_state_ = false;
  changes_ = 0;
  pending_.reset();
}

PendingStep LiveState::take_pending() {
  PendingStep pending = std::move(*pending_);
  pending_.reset();
  return pending;
}

Result<Agreement> LiveState::agree(Comm& comm) {
  const std::vector<int64_t> mine = to_values(RankStand{.has_state = has_state_,
                                                        .applied = parts_.progress.step,
                                                        .pending = pending_.has_value(),
                                                        .changes = changes_});
  std::vector<int64_t> all(comm.size() * kStandValues);
  CKPT_TRY(comm.all_gather(mine, all));
  std::vector<RankStand> stands;
  stands.reserve(comm.size());
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    stands.push_back(stand_from(std::span(all).subspan(rank * kStandValues, kStandValues)));
  }
  CKPT_ASSIGN(agreement_, moetrain::agree(stands));
  late_step_.reset();
  if (agreement_.applies[comm.rank()]) {
    parts_.before_change();
    late_step_ = parts_.trainer.apply(parts_.model, parts_.progress, take_pending());
  }
  pending_.reset();
  has_state_ = agreement_.state[comm.rank()];

  Handover handover{.progress = parts_.progress,
                    .partial = parts_.partial.handover(),
                    .pace = parts_.pacer.state(),
                    .stamps = {parts_.stamps.counts().begin(), parts_.stamps.counts().end()},
                    .saved_step = parts_.saved_step,
                    .last_loss = parts_.last_loss};
  std::vector<int64_t> values = to_values(std::move(handover), grid());
  CKPT_TRY(comm.broadcast(std::span(values), agreement_.source));
  handover = handover_from(values, grid());
  CKPT_TRY(parts_.partial.take_over(handover.partial, handover.progress.routed_tokens));
  CKPT_TRY(parts_.pacer.take_over(handover.pace, handover.progress.step));
  parts_.progress = std::move(handover.progress);
  std::copy(handover.stamps.begin(), handover.stamps.end(), parts_.stamps.counts().begin());
  parts_.saved_step = handover.saved_step;
  parts_.last_loss = handover.last_loss;
  return agreement_;
}

void LiveState::stay(uint32_t ranks) {
  CKPT_ASSERT(has_state_ && !pending_);
  agreement_ = {.step = parts_.progress.step,
                .applies = std::vector<bool>(ranks, false),
                .state = std::vector<bool>(ranks, true),
                .changes = changes_};
  late_step_.reset();
}

// By expert of the grid.
std::vector<bool> LiveState::held() const {
  std::vector<bool> held(grid().size());
  if (!has_state_) return held;
  const std::span<const Expert> experts =
      taken_out_ ? std::span<const Expert>(pool_) : parts_.model.experts().owned();
  for (const Expert& expert : experts) held[grid().at(expert.layer, expert.expert)] = true;
  for (const uint32_t missing : missing_) held[missing] = false;
  return held;
}

Status LiveState::plan(Comm& comm, const PlanPlacement& planner) {
  const std::vector<bool> mine = held();
  const std::vector<int64_t> send(mine.begin(), mine.end());
  std::vector<int64_t> all(comm.size() * send.size());
  CKPT_TRY(comm.all_gather(send, all));
  std::vector<std::vector<bool>> holds;
  holds.reserve(comm.size());
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    const auto from = all.begin() + static_cast<ptrdiff_t>(rank * send.size());
    holds.emplace_back(from, from + static_cast<ptrdiff_t>(send.size()));
  }
  CKPT_ASSIGN(next_, planner(comm.size(), parts_.progress.routed_tokens, holds));
  const ModelConfig& shape = parts_.model.config();
  std::vector<MovingItem> items(grid().size());
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto wanted = holders_of_experts(next_, layer);
    for (uint32_t expert = 0; expert < shape.experts; ++expert) {
      MovingItem& item = items[grid().at(layer, expert)];
      item.bytes = expert_bytes(shape);
      item.wanted = wanted[expert];
      for (uint32_t rank = 0; rank < comm.size(); ++rank) {
        if (holds[rank][grid().at(layer, expert)]) item.holders.push_back(rank);
      }
    }
  }
  // Dense state: whoever has state has it, the others want it.
  MovingItem dense;
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    (agreement_.state[rank] ? dense.holders : dense.wanted).push_back(rank);
  }
  for (Parameter& parameter : parts_.model.dense()) {
    dense.bytes = bytes_of({&parameter});
    items.push_back(dense);
  }
  plan_ = plan_migration(items, comm.size(), kRoundBytes);
  lost_ = plan_.lost;
  return check_same_plan(comm);
}

// Every rank plans by itself. Ranks that came to different plans would wait for each other's bytes.
Status LiveState::check_same_plan(Comm& comm) const {
  uint32_t crc = 0;
  for (const LayerSlots& layer : next_.slots) {
    for (const std::vector<uint32_t>& experts : layer) {
      const auto count = static_cast<uint32_t>(experts.size());
      crc = ckpt::base::crc32c(std::as_bytes(std::span(&count, 1)), crc);
      crc = ckpt::base::crc32c(std::as_bytes(std::span(experts)), crc);
    }
  }
  for (const std::vector<Move>& round : plan_.rounds) {
    crc = ckpt::base::crc32c(std::as_bytes(std::span(round)), crc);
  }
  const int64_t mine = crc;
  std::vector<int64_t> all(comm.size());
  CKPT_TRY(comm.all_gather(std::span(&mine, 1), all));
  const auto other = std::ranges::find_if(all, [&](int64_t digest) { return digest != all[0]; });
  if (other == all.end()) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "step {}: rank {} has planned another placement, or other moves, than rank 0 "
                    "(CRC32C {:08x}, {:08x}): do they run the same program on like machines?",
                    parts_.progress.step, other - all.begin(), *other, all[0]);
}

// Experts leave the store, so that some can come and none has to go.
void LiveState::take_out() {
  parts_.before_change();
  if (!taken_out_) pool_ = parts_.model.experts().release();
  taken_out_ = true;
  const ExpertGrid all = grid();
  std::erase_if(pool_, [&](const Expert& expert) {
    return !has_state_ ||
           missing_.contains(static_cast<uint32_t>(all.at(expert.layer, expert.expert)));
  });
  missing_.clear();
}

std::vector<Parameter*> LiveState::parameters_of(uint32_t item) {
  const ExpertGrid all = grid();
  if (item >= all.size()) return {&parts_.model.dense()[item - all.size()]};
  for (Expert& expert : pool_) {
    if (all.at(expert.layer, expert.expert) == item) return {&expert.w1, &expert.w2, &expert.w3};
  }
  CKPT_ASSERT_MSG(false, "an expert that is planned to move is not there");
}

Status LiveState::exchange(Comm& comm, const std::vector<Move>& round) {
  std::vector<int64_t> send_counts(comm.size());
  std::vector<int64_t> recv_counts(comm.size());
  std::vector<std::byte> send;
  const uint64_t expert_size = expert_bytes(parts_.model.config());
  const auto bytes_of_item = [&](uint32_t item) {
    return kItemHeaderBytes + (item < grid().size() ? expert_size : bytes_of(parameters_of(item)));
  };
  for (const Move& move : round) {
    if (move.to == comm.rank()) {
      recv_counts[move.from] += static_cast<int64_t>(bytes_of_item(move.item));
    }
    if (move.from != comm.rank()) continue;
    const size_t begin = send.size();
    send.resize(begin + bytes_of_item(move.item));
    std::span<std::byte> rest = std::span(send).subspan(begin + kItemHeaderBytes);
    const std::span<const std::byte> body = rest;
    for (Parameter* parameter : parameters_of(move.item)) {
      for (const Tensor* tensor : state_of(*parameter)) {
        CKPT_TRY(tensor->read_bytes(rest.first(tensor->bytes())));
        rest = rest.subspan(tensor->bytes());
      }
    }
    const uint64_t crc = ckpt::base::crc32c(body);
    std::memcpy(&send[begin], &crc, sizeof crc);
    send_counts[move.to] += static_cast<int64_t>(bytes_of_item(move.item));
  }
  int64_t received = 0;
  for (const int64_t count : recv_counts) received += count;
  std::vector<std::byte> recv(static_cast<size_t>(received));
  CKPT_TRY(comm.all_to_all_v(std::span<const std::byte>(send), send_counts,
                             std::span<std::byte>(recv), recv_counts));
  std::span<const std::byte> rest = recv;
  for (const Move& move : round) {
    if (move.to != comm.rank()) continue;
    const uint64_t bytes = bytes_of_item(move.item);
    CKPT_TRY(take_in(rest.first(bytes), move.item, move.from));
    rest = rest.subspan(bytes);
  }
  return {};
}

Status LiveState::take_in(std::span<const std::byte> bytes, uint32_t item, uint32_t from) {
  const ExpertGrid all = grid();
  const bool is_expert = item < all.size();
  uint64_t crc = 0;
  std::memcpy(&crc, bytes.data(), sizeof crc);
  std::span<const std::byte> rest = bytes.subspan(kItemHeaderBytes);
  if (crc != ckpt::base::crc32c(rest)) {
    const std::string name =
        is_expert ? fmt::format("layers.{}.experts.{}", item / all.experts, item % all.experts)
                  : parts_.model.dense()[item - all.size()].spec.name;
    return came_damaged(fmt::format("step {}: {} did not come from rank {} as it was sent (CRC32C)",
                                    parts_.progress.step, name, from));
  }
  if (is_expert) {
    pool_.push_back(make_expert(parts_.model.device(), parts_.model.config(), item / all.experts,
                                item % all.experts));
  }
  for (Parameter* parameter : parameters_of(item)) {
    for (Tensor* tensor : state_of(*parameter)) {
      tensor->write_bytes(rest.first(tensor->bytes()));
      rest = rest.subspan(tensor->bytes());
    }
  }
  return {};
}

Status LiveState::came_damaged(const std::string& what) {
  if (++damaged_in_a_row_ < kDamagedInARowMax) {
    return make_error(ErrorCode::kAborted, "{}; once more", what);
  }
  return make_error(ErrorCode::kCorrupt, "{}, {} times in a row", what, damaged_in_a_row_);
}

Status LiveState::move(Comm& comm) {
  take_out();
  for (const std::vector<Move>& round : plan_.rounds) CKPT_TRY(exchange(comm, round));
  // What a device had no memory for, it did not get; nobody may give up his copy for it.
  CKPT_TRY(parts_.model.device().synchronize());
  damaged_in_a_row_ = 0;
  // All that the group has, this rank has its part of now: it may be asked for it.
  has_state_ = true;
  return {};
}

Status LiveState::commit(Comm& comm) {
  CKPT_TRY(comm.barrier());
  Model& model = parts_.model;
  CKPT_ASSIGN(auto store, make_replicated_store(model.device(), model.config(), next_, comm.rank(),
                                                std::move(pool_)));
  CKPT_TRY(model.replace_experts(std::move(store)));
  model.parameters_changed();
  parts_.placement = next_;
  pool_.clear();
  taken_out_ = false;
  for (const uint32_t expert : lost_) {
    const auto mine = experts_of_rank(next_, expert / grid().experts, comm.rank());
    if (std::ranges::binary_search(mine, expert % grid().experts)) missing_.insert(expert);
  }
  return {};
}

Result<LiveState::Settled> LiveState::settle(Comm& comm, const std::set<uint32_t>& in_memory) {
  for (const uint32_t expert : lost_) {
    if (missing_.contains(expert)) continue;
    parts_.stamps.at(ExpertPart::kWeights, expert) = {};
    parts_.stamps.at(ExpertPart::kOptimizer, expert) = {};
  }
  std::vector<int64_t> memory_only(grid().size());
  for (const uint32_t expert : in_memory) memory_only[expert] = 1;
  if (!lost_.empty()) {
    CKPT_TRY(comm.all_reduce_max(parts_.stamps.counts()));
    CKPT_TRY(comm.all_reduce_max(std::span(memory_only)));
  }
  CKPT_TRY(comm.barrier());
  Settled settled{.bytes_moved = plan_.bytes};
  if (!lost_.empty()) {
    Progress& progress = parts_.progress;
    CKPT_ASSIGN(const RecoveryLoss loss,
                parts_.partial.roll_back(lost_, parts_.stamps, progress.routed_tokens,
                                         progress.expert_updates, memory_only));
    settled.lost_tokens = loss.tokens;
    settled.versions.reserve(lost_.size());
    for (const uint32_t expert : lost_) {
      const int64_t weights = parts_.stamps.at(ExpertPart::kWeights, expert).step;
      const int64_t moments = parts_.stamps.at(ExpertPart::kOptimizer, expert).step;
      const bool never = parts_.stamps.never_saved(expert);
      settled.versions.push_back(never ? -1 : std::min(weights, moments));
    }
  }
  missing_.clear();
  changes_ = agreement_.changes + 1;
  return settled;
}

}  // namespace moetrain
