#include "trainer/checkpoint/trainer_state.h"

#include <flatbuffers/flatbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace moetrain {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kStateExperts = 8;

TrainerState example() {
  TrainerState state;
  state.progress = {.step = 120,
                    .applied = 118,
                    .skipped = 2,
                    .skipped_in_a_row = 1,
                    .tokens = 123'456'789,
                    .routed_tokens = std::vector<int64_t>(kLayers * kStateExperts, 77),
                    .routed_last = std::vector<int64_t>(kLayers * kStateExperts, 3)};
  state.config = to_json(TrainConfig{});
  state.corpus_bytes = 1'000'000;
  state.corpus_crc32c = 0xdeadbeef;
  state.placement = *static_placement(kLayers, kStateExperts, 4);
  state.partial = {.snapshots = 12,
                   .k = 4,
                   .k_asked = 2,
                   .lost = {std::vector<int64_t>(kLayers * kStateExperts, 5),
                            std::vector<int64_t>(kLayers * kStateExperts, 6)},
                   .loss_k = 1,
                   .loss_tokens = 321,
                   .loss_since = 17,
                   .loss_experts = 3};
  for (int64_t i = 0; i < int64_t{2} * kLayers * kStateExperts; ++i) {
    state.stamps.push_back({i + 1, 2 * i, 3 * i, 4 * i});
  }
  state.pace = {.every = 12,
                .widest = 20,
                .k = 3,
                .k_min = 2,
                .taken = 108,
                .decide_at = 125,
                .step_ns = 21'000'000,
                .stall_ns = 1'500'000,
                .durable_ns = 9'000'000,
                .restore_ns = 350'000'000,
                .failures = 2,
                .seen_ns = 90'000'000'000,
                .ended = true,
                .halved = 3};
  return state;
}

TEST(TrainerStateTest, RoundTripKeepsState) {
  const auto unit = encode(example());
  ASSERT_TRUE(unit.ok()) << unit.error().message;
  EXPECT_EQ(unit->size(), trainer_unit_bytes(kLayers, kStateExperts));
  const auto back = decode_trainer_state(*unit, kLayers, kStateExperts);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, example());
  EXPECT_EQ(*encode(example()), *unit) << "same state, same bytes";
  TrainerState fresh = example();
  fresh.stamps.clear();
  fresh.pace = {};
  EXPECT_EQ(*decode_trainer_state(*encode(fresh), kLayers, kStateExperts), fresh);
}

TEST(TrainerStateTest, KeepsLoadWindow) {
  TrainerState state = example();
  state.load_window.emplace(kLayers, kStateExperts, 120);
  EXPECT_EQ(*decode_trainer_state(*encode(state), kLayers, kStateExperts), state) << "none known";
  state.load_window.emplace(kLayers, kStateExperts, 117);
  for (int64_t step = 118; step <= 120; ++step) {
    state.load_window->record(std::vector<int64_t>(kLayers * kStateExperts, step));
  }
  EXPECT_EQ(*decode_trainer_state(*encode(state), kLayers, kStateExperts), state);
  for (LayerSlots& layer : state.placement.slots) {
    for (auto& rank : layer) rank.clear();
    for (uint32_t i = 0; i < 5 * kStateExperts; ++i) layer[i % 4].push_back(i % kStateExperts);
  }
  EXPECT_TRUE(encode(state).ok()) << "beside five slots of each expert";
}

TEST(TrainerStateTest, RefusesCountsOfAnotherModel) {
  TrainerState state = example();
  state.load_window.emplace(kLayers, kStateExperts + 1, 120);
  const auto decoded = decode_trainer_state(*encode(state), kLayers, kStateExperts);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ckpt::ErrorCode::kCorrupt);
  EXPECT_THAT(decoded.error().message, testing::HasSubstr("routing counts: "));
}

// The field before the load window was the trial of age weights. Moving the window there gives a
// unit with a trial whose bytes are invalid. The decoder must not read them.
TEST(TrainerStateTest, IgnoresTrialFieldOfOlderUnits) {
  TrainerState state = example();
  state.load_window.emplace(kLayers, kStateExperts, 120);
  auto unit = *encode(state);
  const auto* table = flatbuffers::GetSizePrefixedRoot<flatbuffers::Table>(unit.data());
  const auto fields =
      static_cast<size_t>(table->GetVTable() - reinterpret_cast<uint8_t*>(unit.data()));
  constexpr size_t kTrial = 54;
  constexpr size_t kLoadWindow = 56;
  const auto at = [&](size_t field) { return unit.begin() + static_cast<ptrdiff_t>(field); };
  ASSERT_EQ(std::count(at(fields + kTrial), at(fields + kLoadWindow), std::byte{0}), 2);
  std::swap_ranges(at(fields + kTrial), at(fields + kLoadWindow), at(fields + kLoadWindow));
  const auto decoded = decode_trainer_state(unit, kLayers, kStateExperts);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, example());
}

TEST(TrainerStateTest, HoldsTwelveReplicasOfEachExpert) {
  TrainerState state = example();
  for (LayerSlots& layer : state.placement.slots) {
    for (auto& rank : layer) rank.clear();
    for (uint32_t i = 0; i < 12 * kStateExperts; ++i) layer[i % 4].push_back(i % kStateExperts);
  }
  const auto unit = encode(state);
  ASSERT_TRUE(unit.ok()) << unit.error().message;
  EXPECT_EQ(*decode_trainer_state(*unit, kLayers, kStateExperts), state);
}

TEST(TrainerStateTest, HasRoomForLargeGroups) {
  TrainerState state = example();
  state.placement = *static_placement(kLayers, 64, 64);
  state.progress.routed_tokens.assign(kLayers * 64, INT64_MAX / 64);
  state.progress.routed_last.assign(kLayers * 64, INT64_MAX / 64);
  state.partial.lost.restart.assign(kLayers * 64, INT64_MAX / 64);
  state.stamps.assign(2 * kLayers * 64, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX});
  state.partial.lost.rollback.assign(kLayers * 64, 0);
  const auto unit = encode(state);
  ASSERT_TRUE(unit.ok()) << unit.error().message;
  EXPECT_TRUE(decode_trainer_state(*unit, kLayers, 64).ok());
  state.config.assign(1 << 20, ' ');
  const auto too_large = encode(state);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ckpt::ErrorCode::kResourceExhausted);
}

void expect_corrupt(std::span<const std::byte> unit, const char* why) {
  const auto state = decode_trainer_state(unit, kLayers, kStateExperts);
  ASSERT_FALSE(state.ok()) << why;
  EXPECT_EQ(state.error().code, ckpt::ErrorCode::kCorrupt) << why;
  EXPECT_THAT(state.error().message, testing::StartsWith("unit trainer: ")) << why;
}

TEST(TrainerStateTest, RefusesStatesOfAnotherShape) {
  TrainerState other = example();
  other.placement = *static_placement(kLayers + 1, kStateExperts, 4);
  expect_corrupt(*encode(other), "more layers, another size");
  auto unit = *encode(example());
  unit.pop_back();
  expect_corrupt(unit, "a byte short");
  expect_corrupt({}, "empty");
}

// Checks that a well-formed state with an invalid value is refused.
void expect_refused(void (*spoil)(TrainerState&), const char* why) {
  TrainerState state = example();
  spoil(state);
  expect_corrupt(*encode(state), why);
}

TEST(TrainerStateTest, RefusesInvalidStates) {
  expect_refused([](TrainerState& s) { s.progress.applied = 121; }, "more applied than done");
  expect_refused([](TrainerState& s) { s.progress.applied = UINT64_MAX; }, "wraps around");
  expect_refused([](TrainerState& s) { s.progress.skipped = 3; }, "does not add up");
  expect_refused([](TrainerState& s) { s.progress.skipped_in_a_row = 3; }, "more in a row");
  expect_refused([](TrainerState& s) { s.progress.routed_tokens[5] = -1; }, "negative count");
  expect_refused([](TrainerState& s) { s.progress.routed_last.pop_back(); }, "a count short");
  expect_refused([](TrainerState& s) { s.placement.slots[1][2][0] = kStateExperts; },
                 "no such expert");
  expect_refused([](TrainerState& s) { s.partial.k = kStateExperts + 1; }, "more than there are");
  expect_refused([](TrainerState& s) { s.partial.loss_k = kStateExperts + 1; },
                 "more than there are");
  expect_refused([](TrainerState& s) { s.partial.loss_tokens = -1; }, "negative");
  expect_refused([](TrainerState& s) { s.partial.loss_since = -1; }, "negative");
  expect_refused([](TrainerState& s) { s.partial.loss_experts = kLayers * kStateExperts + 1; },
                 "more than there are");
  expect_refused([](TrainerState& s) { s.partial.lost.restart[3] = 72; }, "lost more than routed");
  expect_refused([](TrainerState& s) { s.partial.lost.rollback[3] = INT64_MAX; }, "wraps around");
  expect_refused([](TrainerState& s) { s.partial.lost.restart.pop_back(); }, "a count short");
  expect_refused([](TrainerState& s) { s.partial.lost.restart[0] = -1; }, "negative");
  expect_refused([](TrainerState& s) { s.placement.slots[1].pop_back(); }, "uneven layers");
  expect_refused([](TrainerState& s) { s.placement.slots[2][0][0] = 7; }, "nobody holds expert 0");
  expect_refused([](TrainerState& s) { s.progress.routed_tokens[9] = 78; }, "one token too many");
  expect_refused([](TrainerState& s) { s.progress.routed_last[0] = 2; }, "one token too few");
  expect_refused([](TrainerState& s) { s.progress.routed_tokens.assign(24, INT64_MAX); },
                 "more than can be counted");
  expect_refused([](TrainerState& s) { s.stamps.pop_back(); }, "a stamp short");
  expect_refused([](TrainerState& s) { s.stamps[4].tokens = -1; }, "fewer than no tokens");
  expect_refused([](TrainerState& s) { s.pace.every = 21; }, "wider than the widest");
  expect_refused([](TrainerState& s) { s.pace.k = kStateExperts + 1; }, "more than there are");
  expect_refused([](TrainerState& s) { s.pace.seen_ns = INT64_MAX; }, "would wrap around");
  expect_refused([](TrainerState& s) { s.pace.step_ns = -1; }, "a step before it began");
  expect_refused([](TrainerState& s) { s.pace.halved = 64; }, "shifted by as many bits");
}

// JSON text ends at a zero byte when it is saved again.
TEST(TrainerStateTest, RefusesZeroByteInConfiguration) {
  auto unit = *encode(example());
  const std::string config = to_json(TrainConfig{});
  const auto at = std::search(unit.begin(), unit.end(), config.begin(), config.end(),
                              [](std::byte byte, char c) { return byte == std::byte(c); });
  ASSERT_NE(at, unit.end());
  at[3] = std::byte{0};
  expect_corrupt(unit, "a configuration with a zero");
}

TEST(TrainerStateTest, RefusesBytesAfterTheEnd) {
  auto unit = *encode(example());
  unit.back() = std::byte{1};
  expect_corrupt(unit, "padding is not zero");
}

// Whatever the bytes, decode ends with a state in range or a clear error (asan and ubsan watch).
TEST(TrainerStateTest, DecodesHostileBytesSafely) {
  const uint32_t seed = 71;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto good = *encode(example());
  uint32_t used = 0;
  std::memcpy(&used, good.data(), sizeof used);
  for (int round = 0; round < 20'000; ++round) {
    auto unit = good;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      unit[random() % (used + 4)] ^= static_cast<std::byte>(1u << random() % 8);
    }
    if (round % 5 == 0) {
      const uint32_t length = static_cast<uint32_t>(random());
      std::memcpy(unit.data(), &length, sizeof length);
    }
    const auto state = decode_trainer_state(unit, kLayers, kStateExperts);
    if (!state.ok()) {
      EXPECT_EQ(state.error().code, ckpt::ErrorCode::kCorrupt);
      continue;
    }
    EXPECT_LE(state->progress.applied, state->progress.step);
    EXPECT_EQ(state->placement.layers(), kLayers);
  }
}

}  // namespace
}  // namespace moetrain
