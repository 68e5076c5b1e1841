// What ranks tell each other of the run, as numbers and back.
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
                     &handover.partial.state.lost.rollback}) {
    for (int64_t i = 0; i < 6; ++i) list->push_back(i * 7 + static_cast<int64_t>(list->size()));
  }
  handover.partial.state.snapshots = 12;
  handover.partial.state.k = 2;
  handover.partial.state.k_asked = 1;
  handover.partial.state.loss_k = 3;
  handover.partial.state.loss_tokens = 1'000;
  handover.partial.state.trial = {0.1, 1e9, true};
  for (uint64_t i = 0; i < 6; ++i) handover.partial.saved.push_back({i, static_cast<int64_t>(i)});
  handover.stamps.assign(2 * 6 * kStampValues, -3);
  handover.saved_step = 4;
  handover.last_loss = -1.25f;
  const std::vector<int64_t> values = to_values(handover, grid);
  EXPECT_EQ(values.size(), handover_values(grid));
  EXPECT_EQ(handover_from(values, grid), handover);
}

}  // namespace
}  // namespace moetrain
