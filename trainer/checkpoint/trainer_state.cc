#include "trainer/checkpoint/trainer_state.h"

#include <algorithm>
#include <cstring>

#include "trainer/checkpoint/trainer_state_generated.h"
#include "trainer/placement/layer_slots.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr uint32_t kRanksMax = 1u << 16;

ckpt::Error corrupt(const std::string& what) {
  return make_error(ErrorCode::kCorrupt, "unit trainer: {}", what);
}

Result<std::vector<std::vector<uint32_t>>> decode_layer(const fb::LayerSlots& layer,
                                                        uint32_t experts) {
  std::vector<std::vector<uint32_t>> ranks;
  if (layer.ranks() == nullptr || layer.ranks()->size() > kRanksMax) {
    return corrupt("a layer of the placement has no ranks");
  }
  for (const fb::RankSlots* slots : *layer.ranks()) {
    std::vector<uint32_t> held;
    if (slots->experts() != nullptr)
      held.assign(slots->experts()->begin(), slots->experts()->end());
    if (std::any_of(held.begin(), held.end(), [&](uint32_t e) { return e >= experts; })) {
      return corrupt("the placement names an expert that does not exist");
    }
    ranks.push_back(std::move(held));
  }
  return ranks;
}

Result<ComputePlacement> decode_placement(const fb::TrainerState& state, uint32_t layers,
                                          uint32_t experts) {
  if (state.placement() == nullptr || state.placement()->size() != layers) {
    return corrupt(fmt::format("the placement is not of {} layers", layers));
  }
  ComputePlacement placement{.ranks = 0, .experts = experts, .slots = {}};
  for (const fb::LayerSlots* layer : *state.placement()) {
    CKPT_ASSIGN(auto ranks, decode_layer(*layer, experts));
    if (!placement.slots.empty() && ranks.size() != placement.ranks) {
      return corrupt("the placement's layers differ in their number of ranks");
    }
    const Status covers = check_covers(ranks, experts);
    if (!covers.ok()) {
      return corrupt(fmt::format("layer {}: {}", placement.slots.size(), covers.error().message));
    }
    placement.ranks = static_cast<uint32_t>(ranks.size());
    placement.slots.push_back(std::move(ranks));
  }
  return placement;
}

Status decode_counts(const flatbuffers::Vector<int64_t>* from, size_t count, const char* name,
                     std::vector<int64_t>& to) {
  if (from == nullptr || from->size() == 0) return {};  // no step was done yet
  // The verifier of FlatBuffers 2.0 looks at the alignment of a vector's length only.
  if (reinterpret_cast<uintptr_t>(from->Data()) % alignof(int64_t) != 0) {
    return corrupt(fmt::format("{} are not aligned", name));
  }
  const bool negative = std::any_of(from->begin(), from->end(), [](int64_t n) { return n < 0; });
  if (from->size() != count || negative) {
    return corrupt(fmt::format("{} are not {} counts", name, count));
  }
  to.assign(from->begin(), from->end());
  return {};
}

// Every layer gives out the same number of assignments; how many, the caller knows.
Status check_layers(const ExpertGrid& grid, const std::vector<int64_t>& counts, const char* name) {
  if (counts.empty()) return {};
  int64_t of_first = 0;
  for (uint32_t expert = 0; expert < grid.experts; ++expert) {
    if (__builtin_add_overflow(of_first, counts[expert], &of_first)) {
      return corrupt(fmt::format("{} of layer 0 are more than can be counted", name));
    }
  }
  const Status routed = check_routing(grid, counts, of_first);
  return routed.ok() ? routed
                     : Status(corrupt(fmt::format("{}: {}", name, routed.error().message)));
}

Status decode_stamps(const fb::TrainerState& from, const ExpertGrid& grid,
                     std::vector<ExpertStamp>& to) {
  std::vector<int64_t> numbers;
  CKPT_TRY(decode_counts(from.stamps(), 2 * kStampValues * grid.size(), "stamps", numbers));
  to.reserve(numbers.size() / kStampValues);
  for (size_t i = 0; i < numbers.size(); i += kStampValues) {
    to.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  }
  return {};
}

Status decode_pace(const fb::Pace* from, uint32_t experts, PaceState& to) {
  if (from == nullptr) return {};
  to = {.every = from->every(),
        .widest = from->widest(),
        .k = from->k(),
        .k_min = from->k_min(),
        .taken = from->taken(),
        .decide_at = from->decide_at(),
        .step_ns = from->step_ns(),
        .stall_ns = from->stall_ns(),
        .durable_ns = from->durable_ns(),
        .restore_ns = from->restore_ns(),
        .failures = from->failures(),
        .seen_ns = from->seen_ns(),
        .ended = from->ended(),
        .halved = from->halved()};
  const Status sane = check_pace(to, experts);
  return sane.ok() ? sane : Status(corrupt(sane.error().message));
}

flatbuffers::Offset<fb::Pace> encode_pace(flatbuffers::FlatBufferBuilder& builder,
                                          const PaceState& pace) {
  return fb::CreatePace(builder, pace.every, pace.widest, pace.k, pace.k_min, pace.taken,
                        pace.decide_at, pace.step_ns, pace.stall_ns, pace.durable_ns,
                        pace.restore_ns, pace.failures, pace.seen_ns, pace.ended, pace.halved);
}

Status decode_load_window(const fb::TrainerState& from, const ExpertGrid& grid,
                          std::optional<LoadWindow>& to) {
  if (from.load_window() == nullptr) return {};
  const auto* const bytes = reinterpret_cast<const std::byte*>(from.load_window()->Data());
  auto window = LoadWindow::decode({bytes, from.load_window()->size()}, grid.layers, grid.experts,
                                   from.step());
  if (!window.ok()) return corrupt(window.error().message);
  to = std::move(*window);
  return {};
}

std::vector<uint8_t> encode_load_window(const LoadWindow& window) {
  const std::vector<std::byte> bytes = window.encode();
  const auto* const first = reinterpret_cast<const uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

Status decode_partial(const fb::TrainerState& from, const ExpertGrid& grid,
                      std::vector<int64_t> routed, PartialState& to) {
  to.snapshots = from.snapshots();
  to.k = from.k();
  to.k_asked = from.k_asked();
  if (to.snapshots > INT64_MAX || to.k > grid.experts || to.k_asked > grid.experts) {
    return corrupt(fmt::format("snapshot {}, {} of {} experts", to.snapshots, to.k, grid.experts));
  }
  to.loss_k = from.loss_k();
  to.loss_tokens = from.loss_tokens();
  to.loss_since = from.loss_since();
  to.loss_experts = from.loss_experts();
  if (to.loss_k > grid.experts || to.loss_tokens < 0 || to.loss_since < 0 ||
      to.loss_experts > grid.size()) {
    return corrupt(
        fmt::format("{} tokens lost with {} of {} experts, {} of {} experts since the "
                    "last snapshot",
                    to.loss_tokens, to.loss_k, grid.experts, to.loss_since, to.loss_experts));
  }
  CKPT_TRY(decode_counts(from.lost_restart(), grid.size(), "lost tokens", to.lost.restart));
  CKPT_TRY(
      decode_counts(from.lost_rollback(), grid.size(), "rolled back tokens", to.lost.rollback));
  PltMeter::Lost lost = to.lost;
  lost.restart.resize(grid.size());
  lost.rollback.resize(grid.size());
  routed.resize(grid.size());
  const auto meter = PltMeter::resume(grid, std::move(lost), routed);
  return meter.ok() ? Status() : Status(corrupt(meter.error().message));
}

}  // namespace

Result<std::vector<std::byte>> encode(const TrainerState& state) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::LayerSlots>> layers;
  layers.reserve(state.placement.slots.size());
  for (const auto& layer : state.placement.slots) {
    std::vector<flatbuffers::Offset<fb::RankSlots>> ranks;
    ranks.reserve(layer.size());
    for (const auto& held : layer) ranks.push_back(fb::CreateRankSlotsDirect(builder, &held));
    layers.push_back(fb::CreateLayerSlotsDirect(builder, &ranks));
  }
  std::vector<int64_t> stamps;
  stamps.reserve(kStampValues * state.stamps.size());
  for (const ExpertStamp& stamp : state.stamps) {
    stamps.insert(stamps.end(), {stamp.snapshot, stamp.tokens, stamp.updates, stamp.step});
  }
  const auto pace = encode_pace(builder, state.pace);
  std::vector<uint8_t> load_window;
  if (state.load_window) load_window = encode_load_window(*state.load_window);
  const Progress& p = state.progress;
  builder.FinishSizePrefixed(
      fb::CreateTrainerStateDirect(
          builder, p.step, p.applied, p.skipped, p.skipped_in_a_row, p.tokens, state.config.c_str(),
          state.corpus_bytes, state.corpus_crc32c, &layers, &p.routed_tokens, &p.routed_last,
          state.partial.snapshots, state.partial.k, state.partial.k_asked,
          &state.partial.lost.restart, &state.partial.lost.rollback, &stamps, pace,
          state.partial.loss_k, state.partial.loss_tokens, state.partial.loss_since,
          state.partial.loss_experts, state.load_window ? &load_window : nullptr),
      fb::TrainerStateIdentifier());
  std::vector<std::byte> unit(
      trainer_unit_bytes(state.placement.layers(), state.placement.experts));
  if (builder.GetSize() > unit.size()) {
    return make_error(ErrorCode::kResourceExhausted,
                      "unit trainer: {} bytes of state do not fit its {} bytes", builder.GetSize(),
                      unit.size());
  }
  std::memcpy(unit.data(), builder.GetBufferPointer(), builder.GetSize());
  return unit;
}

Result<TrainerState> decode_trainer_state(ckpt::ByteView unit, uint32_t layers, uint32_t experts) {
  if (unit.size() != trainer_unit_bytes(layers, experts)) {
    return corrupt(fmt::format("{} bytes, but a model of {} layers and {} experts has {}",
                               unit.size(), layers, experts, trainer_unit_bytes(layers, experts)));
  }
  const uint64_t bytes = ckpt::base::load<uint32_t>(unit.data()) + sizeof(uint32_t);
  if (bytes > unit.size()) return corrupt("longer than the unit");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(unit.data()), bytes);
  if (!fb::VerifySizePrefixedTrainerStateBuffer(verifier)) return corrupt("not a trainer state");
  if (!ckpt::base::all_zero(unit.subspan(bytes))) return corrupt("bytes after its end");
  const fb::TrainerState& from = *fb::GetSizePrefixedTrainerState(unit.data());

  TrainerState state;
  Progress& p = state.progress;
  p.step = from.step();
  p.applied = from.applied();
  p.skipped = from.skipped();
  p.skipped_in_a_row = from.skipped_in_a_row();
  p.tokens = from.tokens();
  // No sums of numbers that came from outside: they could wrap around.
  if (p.applied > p.step || p.skipped != p.step - p.applied || p.skipped_in_a_row > p.skipped) {
    return corrupt(fmt::format("{} steps, {} applied, {} skipped do not add up", p.step, p.applied,
                               p.skipped));
  }
  if (from.config() != nullptr) state.config = from.config()->str();
  if (state.config.find('\0') != std::string::npos) return corrupt("a zero in its configuration");
  state.corpus_bytes = from.corpus_bytes();
  state.corpus_crc32c = from.corpus_crc32c();
  CKPT_ASSIGN(state.placement, decode_placement(from, layers, experts));
  const size_t count = size_t{layers} * experts;
  CKPT_TRY(decode_counts(from.routed_tokens(), count, "routed tokens", p.routed_tokens));
  CKPT_TRY(decode_counts(from.routed_last(), count, "last routed tokens", p.routed_last));
  const ExpertGrid grid{layers, experts};
  CKPT_TRY(check_layers(grid, p.routed_tokens, "routed tokens"));
  CKPT_TRY(check_layers(grid, p.routed_last, "last routed tokens"));
  CKPT_TRY(decode_partial(from, grid, p.routed_tokens, state.partial));
  CKPT_TRY(decode_stamps(from, grid, state.stamps));
  CKPT_TRY(decode_pace(from.pace(), experts, state.pace));
  CKPT_TRY(decode_load_window(from, grid, state.load_window));
  return state;
}

}  // namespace moetrain
