#include "trainer/rank/state_restorer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "formats/base/parse.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/restore.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/elastic/next_placement.h"
#include "trainer/parallel/planned_placement.h"
#include "trainer/rank/version_agreement.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

Result<ComputePlacement> first_sharded_placement(const RankState& state) {
  const ModelConfig& shape = state.options.config.model;
  const RankGroup& group = state.seat.group;
  return plan_first_step(placing_of_group(state.options.placing, shape, group.ranks), shape,
                         group.ranks, routing_nodes(group, state.options.nodes));
}

Result<ComputePlacement> StateRestorer::first_placement_of_group() const {
  const RankOptions& options = state_.options;
  const RankGroup& group = state_.seat.group;
  if (options.experts_sharded()) return first_sharded_placement(state_);
  if (group == first_group(options.ranks, options.nodes)) return first_placement(options);
  return place_experts(options.placing, options.config.model, group, {});
}

Result<RecoveryReport> StateRestorer::restore(const client::Epoch& epoch) {
  HeldState& held = state_.held;
  RecoveryReport report;
  held.stamps.clear();
  resumed_whole_ = true;
  in_memory_.assign(size_t{held.placement.layers()} * held.placement.experts, 0);
  CKPT_ASSIGN(const ComputePlacement placement, first_placement_of_group());
  state_.settle_device();
  CKPT_TRY(held.hold(placement, epoch.rank));
  if (epoch.resume) {
    CKPT_TRY(restore_view(epoch, report));
  } else {
    held.model->initialise(state_.options.config.seed);
    state_.progress = {};
    state_.load_window.reset();
    state_.partial.start();
    pace_.begin_run();
  }
  return report;
}

Status StateRestorer::restore_view(const client::Epoch& epoch, RecoveryReport& report) {
  HeldState& held = state_.held;
  CKPT_ASSIGN(
      RestoreSummary summary,
      restore_units(state_.member.session(), state_.options.run, *epoch.resume, held.units,
                    units_of_rank(held.units, held.model->experts().ownership(), state_.seat.rank),
                    *held.memory, state_.link.get(), ViewLevel::kMemory));
  held.model->parameters_changed();
  if (summary.torn) {
    // settle() makes the ranks agree on another view; until then only the step is known.
    state_.progress = {.step = epoch.resume->step};
  } else {
    CKPT_TRY(take_over(*epoch.resume));
  }
  restored_ = std::move(summary.versions);
  for (const std::string& note : summary.notes) state_.say(note);
  report.restored.bytes_memory = summary.bytes_memory;
  report.restored.bytes_disk = summary.bytes_disk;
  report.restored.stale_units = std::move(summary.stale_units);
  for (const uint32_t id : summary.memory_units) {
    const StateUnit& unit = held.units[id];
    if (unit.expert) in_memory_[size_t{*unit.layer} * held.placement.experts + *unit.expert] = 1;
  }
  return {};
}

Status StateRestorer::take_over(const client::ViewPoint& view) {
  const ModelConfig& shape = state_.options.config.model;
  const std::string name = fmt::format("run {} step {}", state_.options.run, view.step);
  Result<TrainerState> state =
      decode_trainer_state(state_.held.trainer_unit, shape.layers, shape.experts);
  if (!state.ok()) return make_error(state.error().code, "{} {}", name, state.error().message);
  if (state->progress.step != view.step) {
    return make_error(ErrorCode::kCorrupt, "{} unit trainer: says it is of step {}", name,
                      state->progress.step);
  }
  CKPT_ASSIGN(const TrainConfig saved, parse_train_config(state->config, name + " unit trainer"));
  const std::string differs = difference(saved, state_.options.config);
  if (!differs.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{} was trained with {}", name, differs);
  }
  const Corpus& corpus = state_.corpus;
  if (state->corpus_crc32c != corpus.crc32c() && state_.seat.rank == 0) {
    state_.events.log(
        fmt::format("{}: the data has changed since ({} with CRC32C {:08x} then, {} with {:08x} "
                    "now); the run continues, with other results than before",
                    name, ckpt::base::format_size(state->corpus_bytes), state->corpus_crc32c,
                    ckpt::base::format_size(corpus.bytes()), corpus.crc32c()));
  }
  const ExpertGrid grid{shape.layers, shape.experts};
  const std::vector<int64_t>& routed = state->progress.routed_tokens;
  const uint64_t assignments = state->progress.tokens * shape.top_k;
  if (!routed.empty() || assignments != 0) {
    const Status adds_up = check_routing(grid, routed, static_cast<int64_t>(assignments));
    if (!adds_up.ok()) {
      return make_error(ErrorCode::kCorrupt, "{} unit trainer: {}", name, adds_up.error().message);
    }
  }
  state_.progress = std::move(state->progress);
  state_.load_window = std::move(state->load_window);
  saved_partial_ = std::move(state->partial);
  saved_pace_ = state->pace;
  return {};
}

// Dense units and the trainer unit are in every snapshot. If one of them is older than the view,
// training on would mix two steps, so all ranks return to the older step.
Status StateRestorer::check_whole(EpochComm& comm, const client::ViewPoint& view) {
  const std::vector<StateUnit>& units = state_.held.units;
  CKPT_ASSIGN(const VersionSpread spread, compare_versions(state_, comm, restored_));
  uint32_t worst = kTrainerUnit;
  for (uint32_t id = 0; id < units.size(); ++id) {
    if (!units[id].expert && spread.oldest(id) < spread.oldest(worst)) worst = id;
  }
  if (spread.oldest(worst) == view.step) return {};
  state_.member.return_to({.lineage = view.lineage, .step = spread.oldest(worst)});
  return make_error(ErrorCode::kAborted,
                    "unit {} cannot be read as of this step: all go back to step {}",
                    units[worst].name, spread.oldest(worst));
}

// From the stamps of all experts: updates that AdamW has made of each, and the steps of their
// versions.
void StateRestorer::take_versions() {
  const ExpertStamps& stamps = state_.held.stamps;
  const size_t experts = stamps.grid().size();
  const auto newest = static_cast<int64_t>(saved_partial_.snapshots);
  std::vector<int64_t> versions;
  versions.reserve(experts);
  state_.progress.expert_updates.clear();
  for (size_t i = 0; i < experts; ++i) {
    const ExpertStamp& moments = stamps.at(ExpertPart::kOptimizer, i);
    const ExpertStamp& weights = stamps.at(ExpertPart::kWeights, i);
    state_.progress.expert_updates.push_back(moments.updates);
    versions.push_back(std::min(weights.step, moments.step));
    if (moments.snapshot != newest || weights.snapshot != newest || in_memory_[i] != 0) {
      resumed_whole_ = false;
    }
  }
  reporter_.resumed(std::move(versions));
}

Status StateRestorer::settle(EpochComm& comm, const client::ViewPoint& view,
                             RecoveryReport& report) {
  CKPT_TRY(check_whole(comm, view));
  CKPT_ASSIGN(const std::vector<uint32_t> restored_again,
              agree_on_versions(state_, comm, view.lineage, restored_));
  report.add_stale(restored_again);
  ExpertStamps& stamps = state_.held.stamps;
  CKPT_TRY(comm.all_reduce_max(stamps.counts()));
  CKPT_TRY(comm.all_reduce_max(in_memory_));
  Progress& progress = state_.progress;
  progress.routed_tokens.resize(stamps.grid().size());
  const Result<RecoveryLoss> loss =
      state_.partial.resume(saved_partial_, progress.routed_tokens, stamps, in_memory_);
  if (!loss.ok()) {
    return make_error(loss.error().code, "run {} step {} {}", state_.options.run, view.step,
                      loss.error().message);
  }
  take_versions();
  report.restored.lost_tokens = loss->tokens;
  CKPT_TRY(pace_.resume(comm, {saved_pace_, saved_partial_.k, loss->tokens}));
  report.take_losses(state_);
  if (loss->tokens > 0) {
    state_.log_once(fmt::format("{} tokens of stale experts are lost, {:.3f} % of all so far{}",
                                loss->tokens, 100 * report.relayout.plt,
                                k_change_text(state_.partial, saved_partial_.k)));
  }
  return {};
}

}  // namespace moetrain
