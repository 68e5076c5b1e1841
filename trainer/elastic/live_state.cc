#include "trainer/elastic/live_state.h"

#include <algorithm>
#include <array>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Bytes of one round of moves, on each rank: far below the size of a rank's experts.
constexpr uint64_t kRoundBytes = 64u << 20;

std::array<Tensor*, 3> tensors_of(WeightState& state) { return {&state.value, &state.m, &state.v}; }

uint64_t bytes_of(WeightState& state) {
  uint64_t bytes = 0;
  for (const Tensor* tensor : tensors_of(state)) bytes += tensor->bytes();
  return bytes;
}

uint64_t expert_bytes(const ModelConfig& shape) {
  return 3 * expert_parameter_count(shape) * sizeof(float);
}

}  // namespace

// Moving items: experts, then dense parameters, each with its weights and moments.
class LiveState::Items final : public MovingItems {
 public:
  explicit Items(LiveState& live)
      : live_(live), grid_(live.grid()), expert_bytes_(expert_bytes(live.parts_.model.config())) {}

  uint64_t bytes(uint32_t item) const override {
    return is_expert(item) ? expert_bytes_ : bytes_of(live_.state_of(item));
  }
  std::string name(uint32_t item) const override {
    return is_expert(item)
               ? fmt::format("layers.{}.experts.{}", item / grid_.experts, item % grid_.experts)
               : live_.parts_.model.dense()[item - grid_.size()].spec.name;
  }
  Status read(uint32_t item, std::span<std::byte> to) override {
    for (const Tensor* tensor : tensors_of(live_.state_of(item))) {
      CKPT_TRY(tensor->read_bytes(to.first(tensor->bytes())));
      to = to.subspan(tensor->bytes());
    }
    return {};
  }
  void write(uint32_t item, std::span<const std::byte> from) override {
    Model& model = live_.parts_.model;
    if (is_expert(item)) {
      live_.pool_.emplace_back(model.device(), item / grid_.experts, item % grid_.experts,
                               ElementRange{0, expert_parameter_count(model.config())});
    }
    for (Tensor* tensor : tensors_of(live_.state_of(item))) {
      tensor->write_bytes(from.first(tensor->bytes()));
      from = from.subspan(tensor->bytes());
    }
  }

 private:
  bool is_expert(uint32_t item) const { return item < grid_.size(); }

  LiveState& live_;
  const ExpertGrid grid_;
  const uint64_t expert_bytes_;
};

ExpertGrid LiveState::grid() const {
  const ModelConfig& shape = parts_.model.config();
  return {shape.layers, shape.experts};
}

Ownership LiveState::next_ownership() const {
  return make_ownership(parts_.model.experts().ownership().state(), next_);
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

RankStatus LiveState::status() const {
  return {.has_state = has_state_,
          .applied = parts_.progress.step,
          .pending = pending_.has_value(),
          .changes = changes_};
}

Result<Agreement> LiveState::agree(Comm& comm) {
  const std::vector<int64_t> mine = to_values(status());
  std::vector<int64_t> all(comm.size() * kStatusValues);
  CKPT_TRY(comm.all_gather(mine, all));
  std::vector<RankStatus> statuses;
  statuses.reserve(comm.size());
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    statuses.push_back(status_from(std::span(all).subspan(rank * kStatusValues, kStatusValues)));
  }
  CKPT_ASSIGN(agreement_, moetrain::agree(statuses));
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

void LiveState::agree_unchanged(uint32_t ranks) {
  CKPT_ASSERT(has_state_ && !pending_);
  agreement_ = {.step = parts_.progress.step,
                .applies = std::vector<bool>(ranks, false),
                .state = std::vector<bool>(ranks, true),
                .changes = changes_};
  late_step_.reset();
}

// By expert of the grid: held by this rank.
std::vector<bool> LiveState::held() const {
  std::vector<bool> held(grid().size());
  if (!has_state_) return held;
  const std::span<const OwnedRange> experts =
      taken_out_ ? std::span<const OwnedRange>(pool_) : parts_.model.experts().owned();
  for (const OwnedRange& expert : experts) held[grid().at(expert.layer, expert.expert)] = true;
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
  const Ownership owned_next = next_ownership();
  std::vector<MovingItem> items(grid().size());
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (uint32_t expert = 0; expert < shape.experts; ++expert) {
      MovingItem& item = items[grid().at(layer, expert)];
      item.bytes = expert_bytes(shape);
      item.wanted = owned_next.holders(layer, expert);
      for (uint32_t rank = 0; rank < comm.size(); ++rank) {
        if (holds[rank][grid().at(layer, expert)]) item.holders.push_back(rank);
      }
    }
  }
  // Dense state: every rank with state holds it, the others want it.
  MovingItem dense;
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    (agreement_.state[rank] ? dense.holders : dense.wanted).push_back(rank);
  }
  for (Parameter& parameter : parts_.model.dense()) {
    dense.bytes = bytes_of(parameter);
    items.push_back(dense);
  }
  plan_ = plan_migration(items, comm.size(), kRoundBytes);
  lost_ = plan_.lost;
  return check_same_plan(comm);
}

// Every rank plans by itself. Ranks with different plans would wait for each other's bytes.
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

// Takes experts out of the store, so that some can arrive before any is released.
void LiveState::take_out() {
  parts_.before_change();
  if (!taken_out_) pool_ = parts_.model.experts().release();
  taken_out_ = true;
  const ExpertGrid all = grid();
  std::erase_if(pool_, [&](const OwnedRange& expert) {
    return !has_state_ ||
           missing_.contains(static_cast<uint32_t>(all.at(expert.layer, expert.expert)));
  });
  missing_.clear();
}

WeightState& LiveState::state_of(uint32_t item) {
  const ExpertGrid all = grid();
  if (item >= all.size()) return parts_.model.dense()[item - all.size()];
  for (OwnedRange& expert : pool_) {
    if (all.at(expert.layer, expert.expert) == item) return expert;
  }
  CKPT_ASSERT_MSG(false, "an expert that is planned to move is not there");
}

Status LiveState::move(Comm& comm) {
  take_out();
  Items items(*this);
  CKPT_TRY(exchange_.run(comm, plan_, items, fmt::format("step {}", parts_.progress.step)));
  // A failed allocation on the device means missing state; then no peer may release its copy.
  CKPT_TRY(parts_.model.device().synchronize());
  // This rank now has its part of the group's state, and counts as a source from here on.
  has_state_ = true;
  return {};
}

Status LiveState::commit(Comm& comm) {
  CKPT_TRY(comm.barrier());
  Model& model = parts_.model;
  const Ownership owned_next = next_ownership();
  CKPT_ASSIGN(auto store, make_expert_store(model.device(), model.config(), next_, owned_next,
                                            comm.rank(), std::move(pool_)));
  CKPT_TRY(model.replace_experts(std::move(store)));
  model.parameters_changed();
  parts_.placement = next_;
  pool_.clear();
  taken_out_ = false;
  for (const uint32_t expert : lost_) {
    if (owned_next.holds(comm.rank(), expert / grid().experts, expert % grid().experts)) {
      missing_.insert(expert);
    }
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
