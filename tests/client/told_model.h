// The run of told_trainer: a small MoE. The first snapshot saves all units, each later one saves
// one expert in three. All state is a pure function of unit, lineage and step, so that a test can
// compute the contents of any version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/client/client_fixture.h"

namespace ckpt::test::told {

inline constexpr const char* kRun = "told";
inline constexpr uint32_t kRanks = 2;
inline constexpr uint32_t kLayers = 2;
inline constexpr uint32_t kExperts = 3;  // per layer
inline constexpr uint32_t kUnits = 1 + kLayers * kExperts * 2;
inline constexpr uint64_t kArenaBytes = 2 << 20;
inline constexpr uint64_t kSlabBytes = 64 << 10;

struct ExpertUnit {
  uint32_t layer;
  uint32_t expert;
  bool optimizer;
};
// Layer, expert and part of a unit. Unit 0, the dense part, has none.
inline ExpertUnit expert_unit(uint32_t unit) {
  const uint32_t index = (unit - 1) / 2;
  return {index / kExperts, index % kExperts, unit % 2 == 0};
}
inline uint32_t unit_of(const ExpertUnit& of) {
  return 1 + (of.layer * kExperts + of.expert) * 2 + (of.optimizer ? 1 : 0);
}

inline std::vector<client::UnitInfo> units() {
  std::vector<client::UnitInfo> units = {flat_unit("dense", 60'001)};
  for (uint32_t unit = 1; unit < kUnits; ++unit) {
    const auto [layer, expert, optimizer] = expert_unit(unit);
    const std::string part = optimizer ? "optimizer" : "weights";
    units.push_back(flat_unit(
        "layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + "." + part,
        optimizer ? 20'002 : 10'001));
    units.back().layer = layer;
    units.back().expert = expert;
    units.back().part = part;
  }
  return units;
}

// Step 1 saves everything. Each later step saves, of each layer, the weights of one expert and the
// optimizer state of an expert that is often another one.
inline std::vector<uint32_t> units_at(uint64_t step) {
  std::vector<uint32_t> chosen = {0};
  for (uint32_t unit = 1; unit < kUnits; ++unit) {
    const auto [layer, expert, optimizer] = expert_unit(unit);
    const uint64_t turn = (optimizer ? step / 2 : step) + layer;
    if (step == 1 || turn % kExperts == expert) chosen.push_back(unit);
  }
  return chosen;
}

inline std::vector<char> content(uint32_t unit, uint32_t lineage, uint64_t step) {
  return random_bytes(units()[unit].bytes, (lineage * 1000 + step) * 1000 + unit);
}

// Tokens routed to the expert since the run began.
inline uint64_t tokens_until(uint32_t layer, uint32_t expert, uint64_t step) {
  return step * (7 + 5 * layer + 3 * expert + step);
}

inline client::SnapshotOptions plan(uint64_t step) {
  client::SnapshotOptions plan;
  plan.step = step;
  plan.units = units_at(step);
  const auto all = units();
  for (const uint32_t unit : plan.units) {
    const uint64_t half = all[unit].bytes / kRanks;
    plan.fragments.push_back({0, unit, 0, half});
    plan.fragments.push_back({1, unit, half, all[unit].bytes - half});
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t expert = 0; expert < kExperts; ++expert) {
      plan.expert_tokens.push_back({layer, expert, tokens_until(layer, expert, step)});
    }
  }
  return plan;
}

}  // namespace ckpt::test::told
