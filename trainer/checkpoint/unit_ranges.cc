#include "trainer/checkpoint/unit_ranges.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

// The tensors of one state buffer of an expert's unit, which follow each other without gaps.
struct BufferRange {
  StateBuffer buffer = StateBuffer::kValue;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

std::vector<BufferRange> buffers_of(const StateUnit& unit) {
  std::vector<BufferRange> buffers;
  for (const UnitTensor& tensor : unit.tensors) {
    if (buffers.empty() || buffers.back().buffer != tensor.buffer) {
      buffers.push_back({tensor.buffer, tensor.offset, 0});
    }
    buffers.back().bytes += tensor.bytes;
  }
  return buffers;
}

std::vector<UnitRange> sharded_ranges(const StateUnit& unit, const Ownership& ownership,
                                      uint32_t rank) {
  std::vector<UnitRange> ranges;
  for (const BufferRange& buffer : buffers_of(unit)) {
    const ElementRange held =
        ownership.held(rank, *unit.layer, *unit.expert, buffer.bytes / sizeof(float));
    if (held.empty()) continue;
    const uint64_t offset = buffer.offset + held.begin * sizeof(float);
    // A single rank holds all buffers of the unit: one range.
    if (!ranges.empty() && ranges.back().offset + ranges.back().length == offset) {
      ranges.back().length += held.size() * sizeof(float);
    } else {
      ranges.push_back({offset, held.size() * sizeof(float)});
    }
  }
  return ranges;
}

// Dense units are cut at most once for each rank, in every mode of sharing.
uint64_t dense_fragments(const std::vector<StateUnit>& units, uint32_t ranks) {
  const auto dense = std::ranges::count_if(units, [](const auto& unit) { return !unit.expert; });
  return static_cast<uint64_t>(dense) + ranks;
}

// Ranges of `weights` and `optimizer` that one rank holds of one expert.
constexpr uint64_t kShardedRanges = 3;

uint64_t experts_in(const std::vector<StateUnit>& units) {
  return static_cast<uint64_t>(std::ranges::count_if(
      units, [](const StateUnit& unit) { return unit.expert && unit.part == "weights"; }));
}

}  // namespace

std::vector<UnitRange> held_ranges(const StateUnit& unit, const Ownership& ownership,
                                   uint32_t rank) {
  CKPT_ASSERT(rank < ownership.ranks());
  if (unit.bytes == 0) return {};
  if (!unit.expert) return {{0, unit.bytes}};
  if (ownership.state() == ExpertState::kSharded) return sharded_ranges(unit, ownership, rank);
  if (!ownership.holds(rank, *unit.layer, *unit.expert)) return {};
  return {{0, unit.bytes}};
}

uint64_t fragments_max(const std::vector<StateUnit>& units, const Ownership& ownership) {
  uint64_t fragments = dense_fragments(units, ownership.ranks());
  if (ownership.state() == ExpertState::kSharded) {
    return fragments + kShardedRanges * experts_in(units) * ownership.ranks();
  }
  for (const StateUnit& unit : units) {
    if (unit.expert) fragments += ownership.holders(*unit.layer, *unit.expert).size();
  }
  return fragments;
}

Status check_fragments(const std::vector<StateUnit>& units, const Ownership& ownership) {
  const uint64_t fragments = fragments_max(units, ownership);
  if (fragments <= kSnapshotFragmentsMax) return {};
  if (ownership.state() == ExpertState::kReplicated) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "a snapshot of {} experts and their replicas has {} fragments, ckptd "
                            "takes {}; use fewer replicas or experts",
                            experts_in(units), fragments, kSnapshotFragmentsMax);
  }
  const uint64_t per_rank = kShardedRanges * experts_in(units) + 1;
  const uint64_t room =
      kSnapshotFragmentsMax - std::min(dense_fragments(units, 0), kSnapshotFragmentsMax);
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                          "a snapshot of {} sharded experts on {} ranks has {} fragments, ckptd "
                          "takes {}; use at most {} ranks",
                          experts_in(units), ownership.ranks(), fragments, kSnapshotFragmentsMax,
                          room / per_rank);
}

}  // namespace moetrain
