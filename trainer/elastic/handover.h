// Handover: a rank's state of the run without its tensors, for ranks that continue together. Plain
// numbers, sent in one broadcast. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/checkpoint/expert_stamps.h"
#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/loop.h"
#include "trainer/partial/pacer.h"

namespace moetrain {

struct Handover {
  Progress progress;
  PartialHandover partial;
  PaceState pace;
  std::vector<int64_t> stamps;  // ExpertStamps::counts()
  uint64_t saved_step = 0;      // the newest step that is saved
  float last_loss = 0;
  bool operator==(const Handover&) const = default;
};

// The same for all ranks of a model.
size_t handover_values(const ExpertGrid& grid);
// Lists that are empty before the first step become zeros.
std::vector<int64_t> to_values(Handover handover, const ExpertGrid& grid);
Handover handover_from(std::span<const int64_t> values, const ExpertGrid& grid);

}  // namespace moetrain
