#include "trainer/elastic/handover.h"

#include <bit>

#include "formats/base/assert.h"

namespace moetrain {
namespace {

constexpr size_t kStampCounts = 2 * kStampValues;

// One list of the fields for both directions: `number` is called for each number, `list` for each
// list with its length.
template <typename Number, typename List>
void visit(Handover& handover, size_t experts, Number&& number, List&& list) {
  Progress& progress = handover.progress;
  for (uint64_t* value : {&progress.step, &progress.applied, &progress.skipped,
                          &progress.skipped_in_a_row, &progress.tokens, &handover.saved_step}) {
    number(*value);
  }
  PartialState& partial = handover.partial.state;
  number(partial.snapshots);
  number(partial.k);
  number(partial.k_asked);
  number(partial.loss_k);
  number(partial.loss_tokens);
  for (auto* values : {&progress.routed_tokens, &progress.routed_last, &progress.expert_updates,
                       &partial.lost.restart, &partial.lost.rollback}) {
    list(*values, experts);
  }
  list(handover.stamps, kStampCounts * experts);
  handover.partial.saved.resize(experts);
  for (SaveLedger::Saved& saved : handover.partial.saved) {
    number(saved.snapshot);
    number(saved.tokens);
    number(saved.step);
  }
}

}  // namespace

size_t handover_values(const ExpertGrid& grid) { return to_values(Handover(), grid).size(); }

std::vector<int64_t> to_values(Handover handover, const ExpertGrid& grid) {
  std::vector<int64_t> values;
  visit(
      handover, grid.size(), [&](auto& value) { values.push_back(static_cast<int64_t>(value)); },
      [&](std::vector<int64_t>& list, size_t size) {
        list.resize(size);
        values.insert(values.end(), list.begin(), list.end());
      });
  values.push_back(std::bit_cast<int32_t>(handover.last_loss));
  return values;
}

Handover handover_from(std::span<const int64_t> values, const ExpertGrid& grid) {
  Handover handover;
  size_t at = 0;
  visit(
      handover, grid.size(),
      [&](auto& value) {
        value = static_cast<std::remove_reference_t<decltype(value)>>(values[at++]);
      },
      [&](std::vector<int64_t>& list, size_t size) {
        list.assign(values.begin() + static_cast<ptrdiff_t>(at),
                    values.begin() + static_cast<ptrdiff_t>(at + size));
        at += size;
      });
  handover.last_loss = std::bit_cast<float>(static_cast<int32_t>(values[at++]));
  CKPT_ASSERT(at == values.size());
  return handover;
}

}  // namespace moetrain
