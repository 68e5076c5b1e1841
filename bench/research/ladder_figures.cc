#include "bench/research/ladder_figures.h"

#include <algorithm>
#include <utility>

namespace bench {

using moetrain::EventHeader;
using moetrain::RankEvent;
using moetrain::StepEvent;
using moetrain::TrainingEvent;

namespace {

uint32_t replicas_possible(const LadderShape& shape, uint32_t ranks) {
  // Slots grow where there are too few for one of each expert.
  return std::clamp(ranks * shape.slots / shape.experts, 1u, std::min(shape.replicas_min, ranks));
}

}  // namespace

bool LadderFigures::good() const {
  const auto has_expected_replicas = [](const LadderEpoch& epoch) {
    return epoch.effective_replicas >= epoch.replicas_expected;
  };
  return reached_one && back_to_all && idle_steps == 0 && lost_tokens == 0 && redone == 0 &&
         std::ranges::all_of(epochs, has_expected_replicas);
}

LadderFigures ladder_figures(std::vector<RankEvent> events, const LadderShape& shape) {
  std::ranges::stable_sort(events, {}, [](const RankEvent& event) { return event.header.time_ns; });
  LadderFigures figures;
  std::map<uint64_t, LadderEpoch> epochs;
  std::map<uint32_t, uint64_t> epoch_of;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> took_part;  // by epoch and step
  for (const RankEvent& event : events) {
    const EventHeader& at = event.header;
    if (const auto* step = event.as<StepEvent>()) {
      figures.steps = std::max(figures.steps, at.step);
      figures.loss_bits[at.step] = step->loss_bits;
      ++took_part[{epoch_of[at.rank], at.step}];
    }
    const auto* training = event.as<TrainingEvent>();
    if (training == nullptr) continue;
    epoch_of[at.rank] = at.epoch;
    const auto [entry, fresh] = epochs.try_emplace(at.epoch);
    LadderEpoch& epoch = entry->second;
    epoch = {.resumed_at = at.step,
             .group = training->group,
             .effective_replicas = training->effective_replicas,
             .replicas_expected = replicas_possible(shape, training->group),
             .lost_tokens = std::max(epoch.lost_tokens, training->restored.lost_tokens)};
    if (fresh) figures.redone += figures.steps - std::min(figures.steps, at.step);
  }
  figures.epochs.reserve(epochs.size());
  for (const auto& [number, epoch] : epochs) {
    figures.reached_one = figures.reached_one || epoch.group == 1;
    figures.lost_tokens += epoch.lost_tokens;
    figures.epochs.push_back(epoch);
  }
  figures.back_to_all = figures.reached_one && figures.epochs.back().group == shape.ranks;
  for (const auto& [at, ranks] : took_part) {
    if (ranks < epochs[at.first].group) ++figures.idle_steps;
  }
  return figures;
}

}  // namespace bench
