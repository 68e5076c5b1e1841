#include "trainer/elastic/handover.h"

#include <bit>
#include <concepts>

#include "formats/base/assert.h"

namespace moetrain {
namespace {

constexpr size_t kStampCounts = 2 * kStampValues;

int64_t to_value(float number) { return std::bit_cast<int32_t>(number); }
template <std::integral Integer>
int64_t to_value(Integer number) {
  return static_cast<int64_t>(number);
}

void from_value(int64_t value, float& number) {
  number = std::bit_cast<float>(static_cast<int32_t>(value));
}
template <std::integral Integer>
void from_value(int64_t value, Integer& number) {
  number = static_cast<Integer>(value);
}

template <typename Number>
void visit_pace(PaceState& pace, Number&& number) {
  number(pace.every);
  number(pace.widest);
  number(pace.k);
  number(pace.k_min);
  number(pace.taken);
  number(pace.decide_at);
  for (int64_t* ns : {&pace.step_ns, &pace.stall_ns, &pace.durable_ns, &pace.restore_ns}) {
    number(*ns);
  }
  number(pace.failures);
  number(pace.seen_ns);
  number(pace.ended);
  number(pace.halved);
}

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
  number(partial.loss_since);
  number(partial.loss_experts);
  for (auto* values :
       {&progress.routed_tokens, &progress.routed_last, &progress.expert_updates,
        &partial.lost.restart, &partial.lost.rollback, &handover.partial.routed_before}) {
    list(*values, experts);
  }
  list(handover.stamps, kStampCounts * experts);
  for (auto* ledger : {&handover.partial.saved, &handover.partial.kept}) {
    ledger->resize(experts);
    for (SaveLedger::Saved& saved : *ledger) {
      number(saved.snapshot);
      number(saved.tokens);
      number(saved.step);
    }
  }
  auto& recent = handover.partial.recent;
  recent.resize(SaveLedger::kUndoMax);
  for (PartialHandover::Recent& one : recent) {
    number(one.step);
    number(one.snapshot);
  }
  std::erase_if(recent, [](const PartialHandover::Recent& one) { return one.snapshot == 0; });
  visit_pace(handover.pace, number);
  number(handover.last_loss);
}

}  // namespace

size_t handover_values(const ExpertGrid& grid) { return to_values(Handover(), grid).size(); }

std::vector<int64_t> to_values(Handover handover, const ExpertGrid& grid) {
  std::vector<int64_t> values;
  visit(
      handover, grid.size(), [&](auto& value) { values.push_back(to_value(value)); },
      [&](std::vector<int64_t>& list, size_t size) {
        list.resize(size);
        values.insert(values.end(), list.begin(), list.end());
      });
  return values;
}

Handover handover_from(std::span<const int64_t> values, const ExpertGrid& grid) {
  Handover handover;
  size_t at = 0;
  visit(
      handover, grid.size(), [&](auto& value) { from_value(values[at++], value); },
      [&](std::vector<int64_t>& list, size_t size) {
        list.assign(values.begin() + static_cast<ptrdiff_t>(at),
                    values.begin() + static_cast<ptrdiff_t>(at + size));
        at += size;
      });
  CKPT_ASSERT(at == values.size());
  return handover;
}

}  // namespace moetrain
