#include "trainer/elastic/recut.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/base/assert.h"

namespace moetrain {
namespace {

std::array<Tensor*, 3> moving_tensors(WeightState& state) {
  return {&state.value, &state.m, &state.v};
}

// Bytes of one element that moves: weight and both moments.
constexpr uint64_t kMovingBytes = 3 * sizeof(float);
// Bytes of one element that is held: weight, both moments, gradient in double and rounded.
constexpr uint64_t kHeldBytesMax = 4 * sizeof(float) + sizeof(double);

ElementRange overlap(const ElementRange& a, const ElementRange& b) {
  const uint64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

// Pieces of experts' ranges, then pieces of dense parameters: weights, then both moments.
class Recut::Items final : public MovingItems {
 public:
  explicit Items(Recut& recut) : recut_(recut), experts_(expert_count(recut.model_)) {}

  static uint32_t expert_count(const Model& model) {
    return model.config().layers * model.config().experts;
  }

  uint64_t bytes(uint32_t item) const override {
    return piece(item).elements.size() * kMovingBytes;
  }
  std::string name(uint32_t item) const override {
    const ElementRange& elements = piece(item).elements;
    const uint32_t per_layer = recut_.model_.config().experts;
    const std::string of = is_expert(item)
                               ? fmt::format("layers.{}.experts.{}", item % experts_ / per_layer,
                                             item % experts_ % per_layer)
                               : recut_.model_.dense()[piece(item).of].spec.name;
    return fmt::format("{} elements {} to {}", of, elements.begin, elements.end);
  }
  Status read(uint32_t item, std::span<std::byte> to) override {
    const size_t bytes = to.size() / 3;
    WeightState& state = is_expert(item) ? recut_.held_ranges()[item % experts_] : dense(item);
    const uint64_t offset = offset_in(item, recut_.held());
    for (const Tensor* tensor : moving_tensors(state)) {
      CKPT_TRY(recut_.model_.device().download(to.first(bytes), tensor->data() + offset));
      to = to.subspan(bytes);
    }
    return {};
  }
  void write(uint32_t item, std::span<const std::byte> from) override {
    const size_t bytes = from.size() / 3;
    WeightState& state = is_expert(item) ? recut_.next_[item % experts_] : dense(item);
    const uint64_t offset = offset_in(item, recut_.wanted_);
    for (const Tensor* tensor : moving_tensors(state)) {
      recut_.model_.device().upload(tensor->data() + offset, from.first(bytes));
      from = from.subspan(bytes);
    }
  }

 private:
  bool is_expert(uint32_t item) const {
    return item < recut_.plan_.expert_pieces.size() * experts_;
  }
  const RecutPiece& piece(uint32_t item) const {
    const RecutPlan& plan = recut_.plan_;
    return is_expert(item) ? plan.expert_pieces[item / experts_]
                           : plan.dense_pieces[item - plan.expert_pieces.size() * experts_];
  }
  WeightState& dense(uint32_t item) const { return recut_.model_.dense()[piece(item).of]; }
  // In bytes, of the item's first element in the tensors of its state; `range` is that of experts.
  uint64_t offset_in(uint32_t item, const ElementRange& range) const {
    const uint64_t first = is_expert(item) ? range.begin : 0;
    return (piece(item).elements.begin - first) * sizeof(float);
  }

  Recut& recut_;
  const uint32_t experts_;  // of all layers
};

uint64_t Recut::elements() const { return expert_parameter_count(model_.config()); }

std::span<OwnedRange> Recut::held_ranges() {
  return in_pool_ ? std::span<OwnedRange>(pool_) : model_.experts().owned();
}

ElementRange Recut::held() {
  const std::span<OwnedRange> ranges = held_ranges();
  return ranges.empty() ? ElementRange{} : ranges.front().elements;
}

// The store is unusable afterwards, and frees its buffers.
void Recut::take_from_store() {
  if (in_pool_) return;
  pool_ = model_.experts().release();
  in_pool_ = true;
}

// Bytes of old and new ranges.
uint64_t Recut::range_bytes() {
  uint64_t bytes = 0;
  for (const OwnedRange& range : held_ranges()) bytes += range.memory_bytes();
  for (const OwnedRange& range : next_) bytes += range.memory_bytes();
  return bytes;
}

void Recut::release_held() {
  if (!in_pool_) (void)model_.experts().release();
  pool_.clear();
  in_pool_ = true;
}

void Recut::reset() {
  pool_.clear();
  in_pool_ = false;
  next_.clear();
  filled_ = false;
}

Result<bool> Recut::is_whole(Comm& comm, const RankStatus& mine) {
  before_change_();
  if (!mine.has_state) {
    reset();
    release_held();
  }
  std::vector<int64_t> values = to_values(mine);
  const std::vector<int64_t> cut =
      to_values(CutStatus{.held = held(), .filled = filled_, .next = wanted_});
  values.insert(values.end(), cut.begin(), cut.end());
  std::vector<int64_t> all(comm.size() * values.size());
  CKPT_TRY(comm.all_gather(values, all));
  std::vector<RankStatus> statuses;
  std::vector<CutStatus> cuts;
  statuses.reserve(comm.size());
  cuts.reserve(comm.size());
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    const std::span<const int64_t> of = std::span(all).subspan(rank * values.size());
    statuses.push_back(status_from(of.first(kStatusValues)));
    cuts.push_back(cut_status_from(of.subspan(kStatusValues, kCutStatusValues)));
  }
  const Result<Agreement> agreement = agree(statuses);
  if (!agreement.ok()) return false;  // no rank has state
  has_state_ = agreement->state;
  for (uint32_t rank = 0; rank < comm.size(); ++rank) {
    if (!has_state_[rank]) cuts[rank] = {};
  }
  agreement_ = agree_on_cut(cuts, elements());
  if (!agreement_.whole) return false;
  if (!has_state_[comm.rank()]) {
    next_.clear();
    release_held();
  }
  settle_interrupted(agreement_.adopts);
  return true;
}

uint32_t Recut::source() const {
  return static_cast<uint32_t>(std::ranges::find(has_state_, true) - has_state_.begin());
}

void Recut::settle_interrupted(bool adopts) {
  if (adopts && filled_ && !stays_) {
    release_held();
    pool_ = std::move(next_);
  }
  next_.clear();
  filled_ = false;
}

void Recut::fill_from_held(const ElementRange& wanted) {
  const ElementRange common = overlap(held(), wanted);
  if (common.empty()) return;
  const uint64_t from_offset = (common.begin - held().begin) * sizeof(float);
  const uint64_t to_offset = (common.begin - wanted.begin) * sizeof(float);
  const std::span<OwnedRange> from = held_ranges();
  for (size_t i = 0; i < next_.size(); ++i) {
    const std::array<Tensor*, 3> sources = moving_tensors(from[i]);
    const std::array<Tensor*, 3> targets = moving_tensors(next_[i]);
    for (size_t of = 0; of < sources.size(); ++of) {
      model_.device().copy(targets[of]->data() + to_offset, sources[of]->data() + from_offset,
                           common.size() * sizeof(float));
    }
  }
}

void Recut::make_next_ranges() {
  take_from_store();
  if (wanted_.empty()) return;
  const uint32_t experts = Items::expert_count(model_);
  next_.reserve(experts);
  for (uint32_t i = 0; i < experts; ++i) {
    const uint32_t per_layer = model_.config().experts;
    next_.emplace_back(model_.device(), i / per_layer, i % per_layer, wanted_);
  }
  fill_from_held(wanted_);
}

Status Recut::move(Comm& comm, const std::vector<bool>& stays, uint64_t step) {
  const uint32_t experts = Items::expert_count(model_);
  RecutRequest request{.held = agreement_.held,
                       .wanted = cut_for(stays, comm.size(), elements()),
                       .experts = experts,
                       .dense = {},
                       .dense_held = has_state_,
                       .bytes_per_element = kMovingBytes,
                       .bytes_per_piece = kItemHeaderBytes};
  for (const Parameter& parameter : model_.dense()) {
    request.dense.push_back(parameter.value.size());
  }
  plan_ = plan_recut(request);
  wanted_ = request.wanted[comm.rank()];
  stays_ = wanted_ == held();
  if (!stays_) make_next_ranges();
  const uint64_t ranges = range_bytes();
  memory_.bound = kHeldBytesMax * experts * held().size() + kRecutBufferBytes;
  if (!stays_) memory_.bound += kHeldBytesMax * experts * wanted_.size();
  Items items(*this);
  CKPT_TRY(
      exchange_.run(comm, plan_.moves, items, fmt::format("step {}", step), kRecutBufferBytes));
  memory_.bytes = ranges + exchange_.buffer_bytes();
  CKPT_ASSERT(memory_.bytes <= memory_.bound);
  // A failed allocation of a range is reported here: no rank may release its old range.
  CKPT_TRY(model_.device().synchronize());
  filled_ = true;
  return {};
}

Status Recut::commit(Comm& comm) {
  CKPT_ASSERT(filled_);
  CKPT_TRY(comm.barrier());
  if (!stays_) {
    release_held();
    pool_ = std::move(next_);
  } else {
    take_from_store();
  }
  next_.clear();
  filled_ = false;
  return {};
}

std::vector<OwnedRange> Recut::take() {
  CKPT_ASSERT(in_pool_);
  in_pool_ = false;
  return std::exchange(pool_, {});
}

}  // namespace moetrain
