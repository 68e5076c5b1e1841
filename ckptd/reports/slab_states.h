// Names of slab states, for metrics and status. Private to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "ckptd/staging/staging.h"

namespace ckptd {

inline constexpr std::array<std::pair<SlabState, std::string_view>, 7> kSlabStates = {{
    {SlabState::kFree, "free"},
    {SlabState::kLeased, "leased"},
    {SlabState::kSealed, "sealed"},
    {SlabState::kWriting, "writing"},
    {SlabState::kDurable, "durable"},
    {SlabState::kRestoring, "restoring"},
    {SlabState::kHeld, "held"},
}};

inline uint64_t slabs_in(const Staging::Stats& stats, SlabState state) {
  const auto found = stats.slabs.find(state);
  return found == stats.slabs.end() ? 0 : found->second;
}

}  // namespace ckptd
