// State of the run that ranks hand over, encoded as numbers and decoded.
#include "trainer/elastic/handover.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

TEST(HandoverTest, SurvivesTheWire) {
  const ExpertGrid grid{2, 3};
  Handover handover;
  handover.progress = {.step = 5, .applied = 4, .skipped = 1, .skipped_in_a_row = 1, .tokens = 99};
  for (auto* list : {&handover.progress.routed_tokens, &handover.progress.routed_last,
                     &handover.progress.expert_updates, &handover.partial.state.lost.restart,
                     &handover.partial.state.lost.rollback, &handover.partial.routed_before}) {
    for (int64_t i = 0; i < 6; ++i) list->push_back(i * 7 + static_cast<int64_t>(list->size()));
  }
  handover.partial.state.snapshots = 12;
  handover.partial.state.k = 2;
  handover.partial.state.k_asked = 1;
  handover.partial.state.loss_k = 3;
  handover.partial.state.loss_since = 5;
  handover.partial.state.loss_experts = 2;
  handover.partial.state.loss_tokens = 1'000;
  for (uint64_t i = 0; i < 6; ++i) {
    handover.partial.saved.push_back({i, static_cast<int64_t>(i), i + 10});
    handover.partial.kept.push_back({i + 1, static_cast<int64_t>(2 * i), i + 20});
  }
  handover.partial.recent = {{3, 11}, {4, 12}};
  handover.pace = {.every = 7,
                   .widest = 9,
                   .k = 2,
                   .k_min = 1,
                   .taken = 4,
                   .decide_at = 12,
                   .step_ns = 1'000'000'007,
                   .stall_ns = 3,
                   .durable_ns = 5,
                   .restore_ns = 8,
                   .failures = 13,
                   .seen_ns = INT64_MAX / 4,
                   .ended = true,
                   .halved = 2};
  handover.stamps.assign(2 * 6 * kStampValues, -3);
  handover.saved_step = 4;
  handover.last_loss = -1.25f;
  const std::vector<int64_t> values = to_values(handover, grid);
  EXPECT_EQ(values.size(), handover_values(grid));
  EXPECT_EQ(handover_from(values, grid), handover);
}

}  // namespace
}  // namespace moetrain
