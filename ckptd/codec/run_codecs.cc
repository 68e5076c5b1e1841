#include "ckptd/codec/run_codecs.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "formats/base/assert.h"

namespace ckptd {
namespace {

using Wish = EncodeShare::Wish;

// A kind has one share per wish.
constexpr size_t kWishes = 3;
Wish wish_for(CodecChoice choice) {
  if (choice == CodecChoice::kAuto) return Wish::kIfSooner;
  return choice == CodecChoice::kNone ? Wish::kNever : Wish::kAlways;
}
size_t share_of(uint32_t kind, Wish wish) { return kind * kWishes + static_cast<size_t>(wish); }

}  // namespace

RunCodecs::RunCodecs(UnitSpecList units, std::vector<CodecChoice> choices)
    : units_(std::move(units)), kinds_(*units_), choices_(std::move(choices)) {
  CKPT_ASSERT(choices_.size() == 1 || choices_.size() == units_->size());
  state_.resize(kinds_.size());
  for (uint32_t kind = 0; kind < kinds_.size(); ++kind) {
    state_[kind].told.name = kinds_.name(kind);
  }
  for (ckpt::UnitId unit = 0; unit < units_->size(); ++unit) {
    if (choice(unit) == CodecChoice::kAuto) state_[kinds_.of(unit)].automatic = true;
  }
  plan_ = make_plan();
}

std::vector<EncodeShare> RunCodecs::shares_of(const std::vector<ckpt::UnitId>& units) const {
  std::vector<EncodeShare> shares(kinds_.size() * kWishes);
  for (uint32_t kind = 0; kind < kinds_.size(); ++kind) {
    for (const Wish wish : {Wish::kNever, Wish::kAlways, Wish::kIfSooner}) {
      EncodeShare& share = shares[share_of(kind, wish)];
      share.wish = wish;
      share.figures = state_[kind].told.figures;
      share.encoded_so_far = wish == Wish::kIfSooner && state_[kind].told.encoded;
    }
  }
  for (const ckpt::UnitId unit : units) {
    shares[share_of(kinds_.of(unit), wish_for(choice(unit)))].bytes += units_->at(unit).bytes;
  }
  return shares;
}

RunCodecs::Snapshot RunCodecs::begin(const std::vector<ckpt::UnitId>& units,
                                     const EncodeConditions& conditions) {
  ++snapshots_;
  Snapshot snapshot;
  const bool any_automatic =
      std::any_of(state_.begin(), state_.end(), [](const State& state) { return state.automatic; });
  if (!any_automatic) return {.plan = plan_};
  const std::vector<EncodeShare> shares = shares_of(units);
  const std::vector<bool> encoded = choose_encoded(shares, conditions);
  for (uint32_t kind = 0; kind < kinds_.size(); ++kind) {
    State& state = state_[kind];
    const size_t share = share_of(kind, Wish::kIfSooner);
    if (shares[share].bytes == 0) continue;
    if (encoded[share] != state.told.encoded) {
      state.told.encoded = encoded[share];
      snapshot.changed.insert(kind);
    }
    if (state.told.figures && snapshots_ < state.sampled + limits::kCodecSampleEvery) continue;
    state.sampled = snapshots_;
    snapshot.samples.insert(kind);
  }
  if (!snapshot.changed.empty()) plan_ = make_plan();
  snapshot.plan = plan_;
  return snapshot;
}

// Null if the plan chooses no unit.
EncodePlan RunCodecs::make_plan() const {
  auto plan = std::make_shared<UnitsToEncode>();
  plan->units = units_;
  plan->chosen.resize(units_->size());
  plan->deltas.resize(units_->size());
  bool any = false;
  for (ckpt::UnitId unit = 0; unit < units_->size(); ++unit) {
    const CodecChoice asked = choice(unit);
    plan->deltas[unit] = asked == CodecChoice::kDelta;
    plan->chosen[unit] = asked == CodecChoice::kZstd || plan->deltas[unit] ||
                         (asked == CodecChoice::kAuto && state_[kinds_.of(unit)].told.encoded);
    plan->any_deltas = plan->any_deltas || plan->deltas[unit];
    any = any || plan->chosen[unit];
  }
  return any ? plan : nullptr;
}

void RunCodecs::measured(uint32_t kind, const CodecFigures& figures) {
  std::optional<CodecFigures>& known = state_.at(kind).told.figures;
  if (!known) {
    known = figures;
    return;
  }
  known->ratio = (known->ratio + figures.ratio) / 2;
  known->bytes_per_second = (known->bytes_per_second + figures.bytes_per_second) / 2;
}

std::vector<RunCodecs::Kind> RunCodecs::automatic() const {
  std::vector<Kind> kinds;
  kinds.reserve(state_.size());
  for (const State& state : state_) {
    if (state.automatic) kinds.push_back(state.told);
  }
  return kinds;
}

}  // namespace ckptd
