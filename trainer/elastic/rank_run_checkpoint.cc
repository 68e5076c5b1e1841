// The part of RankRun between the model and the checkpoints: what an epoch begins with, and what a
// snapshot takes.
#include <algorithm>

#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/restore.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/elastic/rank_run.h"
#include "trainer/elastic/timed.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using Kind = RankEvent::Kind;
namespace client = ckpt::client;

Result<ExpertPlacement> RankRun::placement_of(const RankGroup& group) const {
  if (group == first_group(options_.ranks, options_.nodes)) return first_placement(options_);
  return place_experts(options_.placing, options_.config.model, group, {});
}

Status RankRun::restore(const client::Epoch& epoch, RankEvent& event) {
  live_->forget();  // until all have it, what lies in the model is nobody's state
  stamps_->clear();
  went_on_ = false;
  resumed_whole_ = true;
  in_memory_.assign(size_t{placement_.layers()} * placement_.experts, 0);
  CKPT_ASSIGN(const ExpertPlacement placement, placement_of(group_));
  CKPT_TRY(hold(placement, epoch.rank));
  if (epoch.resume) {
    events_.write({.kind = Kind::kRestoring, .epoch = epoch.epoch});
    CKPT_ASSIGN(RestoreSummary summary,
                restore_units(member_->session(), options_.run, *epoch.resume, units_,
                              units_of_rank(units_, placement_, rank_), *memory_, link_.get(),
                              ViewLevel::kMemory));
    model_->parameters_changed();
    if (summary.torn) {
      progress_ = {.step = epoch.resume->step};  // for as long as it takes to agree on another view
    } else {
      CKPT_TRY(take_over(*epoch.resume));
    }
    restored_ = std::move(summary.versions);
    for (const std::string& note : summary.notes) events_.log(where() + ": " + note);
    event.resumed = true;
    event.bytes_memory = summary.bytes_memory;
    event.bytes_disk = summary.bytes_disk;
    event.stale_units = summary.stale_units;
    for (const uint32_t id : summary.memory_units) {
      const StateUnit& unit = units_[id];
      if (unit.expert) in_memory_[size_t{*unit.layer} * placement_.experts + *unit.expert] = 1;
    }
  } else {
    model_->initialise(options_.config.seed);
    progress_ = {};
    partial_->start();
    pacer_->start(trained_);
  }
  saved_step_ = progress_.step;
  snapshot_due_ = false;
  away_ = false;
  failed_snapshots_.clear();
  lost_snapshots_.clear();
  event.step = progress_.step;
  return {};
}

Result<VersionSpread> RankRun::compare_versions(Comm& comm, const std::vector<RestoredUnit>& mine) {
  const EpochWatch::Loan loan(*watch_);
  return VersionSpread::compare(comm, units_.size(), mine);
}

// The other units are of the view's step by definition. If one is older, what goes on from here
// would be a mixture that nobody ever trained.
Status RankRun::check_whole(Comm& comm, const client::ViewPoint& view) {
  CKPT_ASSIGN(const VersionSpread spread, compare_versions(comm, restored_));
  uint32_t worst = kTrainerUnit;
  for (uint32_t id = 0; id < units_.size(); ++id) {
    if (!units_[id].expert && spread.oldest(id) < spread.oldest(worst)) worst = id;
  }
  if (spread.oldest(worst) == view.step) return {};
  member_->go_back_to({.lineage = view.lineage, .step = spread.oldest(worst)});
  return make_error(ErrorCode::kAborted,
                    "unit {} cannot be read as of this step: all go back to step {}",
                    units_[worst].name, spread.oldest(worst));
}

Status RankRun::same_versions(Comm& comm, uint32_t lineage, std::vector<RestoredUnit> mine,
                              RankEvent& event) {
  for (;;) {
    CKPT_ASSIGN(const VersionSpread spread, compare_versions(comm, mine));
    if (spread.same()) return {};
    // Each round takes a rank to an older version: there are not that many.
    for (const auto& [step, ids] : spread.newer_here(mine)) {
      events_.log(fmt::format("{}: unit {} and {} more from step {}, as another rank has no newer",
                              where(), units_[ids.front()].name, ids.size() - 1, step));
      CKPT_ASSIGN(const RestoreSummary again,
                  restore_older(member_->session(), options_.run, {lineage, step}, units_, ids,
                                *memory_, link_.get()));
      for (const RestoredUnit& unit : again.versions) {
        std::ranges::find(mine, unit.unit, &RestoredUnit::unit)->step = unit.step;
        if (std::ranges::find(event.stale_units, unit.unit) == event.stale_units.end()) {
          event.stale_units.push_back(unit.unit);
        }
      }
      model_->parameters_changed();
    }
  }
}

Status RankRun::settle(Comm& comm, const client::ViewPoint& view, RankEvent& event) {
  CKPT_TRY(check_whole(comm, view));
  CKPT_TRY(same_versions(comm, view.lineage, restored_, event));
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(stamps_->counts()));
    CKPT_TRY(comm.all_reduce_max(std::span(in_memory_)));
  }
  const ModelConfig& shape = options_.config.model;
  const ExpertGrid grid{shape.layers, shape.experts};
  progress_.routed_tokens.resize(grid.size());
  const Result<RecoveryLoss> loss =
      partial_->resume(saved_partial_, progress_.routed_tokens, *stamps_, in_memory_);
  if (!loss.ok()) {
    return make_error(loss.error().code, "run {} step {} {}", options_.run, view.step,
                      loss.error().message);
  }
  progress_.expert_updates.clear();
  resumed_versions_.clear();
  const auto newest = static_cast<int64_t>(saved_partial_.snapshots);
  for (size_t i = 0; i < grid.size(); ++i) {
    const ExpertStamp& moments = stamps_->at(ExpertPart::kOptimizer, i);
    progress_.expert_updates.push_back(moments.updates);
    const ExpertStamp& weights = stamps_->at(ExpertPart::kWeights, i);
    resumed_versions_.push_back(std::min(weights.step, moments.step));
    if (moments.snapshot != newest || weights.snapshot != newest || in_memory_[i] != 0) {
      resumed_whole_ = false;
    }
  }
  resumed_at_ = static_cast<int64_t>(progress_.step);
  event.lost_tokens = loss->tokens;
  CKPT_TRY(settle_pace(comm, event));
  event.plt = partial_->plt(progress_.routed_tokens);
  event.plt_rollback = partial_->meter().plt_rollback(progress_.routed_tokens);
  event.lost = partial_->lost();
  if (rank_ == 0 && loss->tokens > 0) {
    events_.log(fmt::format("{}: {} tokens of stale experts are lost, {:.3f} % of all so far{}",
                            where(), loss->tokens, 100 * event.plt,
                            k_change_text(saved_partial_.k)));
  }
  return {};
}

// Takes the restored trainer unit over, if it belongs to this run as it is configured now.
Status RankRun::take_over(const client::ViewPoint& view) {
  const ModelConfig& shape = options_.config.model;
  const std::string name = fmt::format("run {} step {}", options_.run, view.step);
  Result<TrainerState> state = decode_trainer_state(trainer_unit_, shape.layers, shape.experts);
  if (!state.ok()) return make_error(state.error().code, "{} {}", name, state.error().message);
  if (state->progress.step != view.step) {
    return make_error(ErrorCode::kCorrupt, "{} unit trainer: says it is of step {}", name,
                      state->progress.step);
  }
  CKPT_ASSIGN(const TrainConfig saved, parse_train_config(state->config, name + " unit trainer"));
  const std::string differs = difference(saved, options_.config);
  if (!differs.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{} was trained with {}", name, differs);
  }
  if (state->corpus_crc32c != corpus_->crc32c() && rank_ == 0) {
    events_.log(
        fmt::format("{}: the data has changed since ({} bytes then, {} now); the run goes"
                    " on, but not as it would have",
                    name, state->corpus_bytes, corpus_->bytes()));
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
  progress_ = std::move(state->progress);
  saved_partial_ = std::move(state->partial);
  saved_pace_ = state->pace;
  return {};
}

Result<Snapshotter::Request> RankRun::request(uint32_t attempt, bool full) {
  const Timed stall(stall_ms_);
  const size_t experts = size_t{placement_.layers()} * placement_.experts;
  progress_.routed_tokens.resize(experts);  // before the first step there are none
  progress_.expert_updates.resize(experts);
  partial_->set_interval(pacer_->widest());
  const uint32_t k_before = partial_->k();
  PartialCheckpoint::Plan plan = partial_->next(
      progress_.step, {progress_.routed_tokens, progress_.expert_updates}, full, *stamps_);
  if (partial_->k() != k_before) {
    if (rank_ == 0) {
      events_.log(
          fmt::format("{}: {:.3f} % of all tokens are lost so far; by --plt-budget {}"
                      " experts of each layer from now on",
                      where(), 100 * partial_->plt(progress_.routed_tokens), partial_->k()));
    }
    tell_pace();
  }
  const ShareSummary bytes = bytes_by_rank(plan.fragments, placement_.ranks);
  uint64_t memory_bytes = 0;
  for (const uint32_t id : plan.memory_units) memory_bytes += units_[id].bytes;
  pacer_->taking(progress_.step, bytes.total_bytes, bytes.total_bytes - memory_bytes);
  TrainerState state{.progress = progress_,
                     .config = config_json_,
                     .corpus_bytes = corpus_->bytes(),
                     .corpus_crc32c = corpus_->crc32c(),
                     .placement = placement_,
                     .partial = partial_->state(),
                     .stamps = stamps_->list(),
                     .pace = pacer_->state()};
  state.pace.ended = full;
  CKPT_ASSIGN(const std::vector<std::byte> unit, encode(state));
  std::copy(unit.begin(), unit.end(), trainer_unit_.begin());
  taking_ = {.kind = Kind::kTaking,
             .step = progress_.step,
             .experts = std::move(plan.experts),
             .memory_experts = std::move(plan.memory_experts),
             .rank_bytes_max = bytes.max_bytes,
             .rank_bytes_mean = bytes.mean_bytes,
             .bytes_kept = memory_bytes,
             .bytes = bytes.total_bytes};
  if (!options_.tell_routing) {
    taking_.experts.clear();
    taking_.memory_experts.clear();
  }
  Snapshotter::Request request{.step = progress_.step,
                               .attempt = attempt,
                               .units = std::move(plan.units),
                               .memory_units = std::move(plan.memory_units),
                               .fragments = std::move(plan.fragments)};
  if (options_.partial.is_partial()) {
    // Nobody waits that long; but what was asked for must not wrap around to a bound of few steps.
    if (__builtin_mul_overflow(uint64_t{partial_->staleness_max()}, pacer_->widest(),
                               &request.staleness_max)) {
      request.staleness_max = UINT64_MAX;
    }
  }
  if (rank_ == 0) describe(request);
  return request;
}

// What `ckptctl log` shows of the commit.
void RankRun::describe(Snapshotter::Request& request) const {
  request.metrics = {{"loss", last_loss_},
                     {"tokens", static_cast<double>(progress_.tokens)},
                     {"plt", partial_->plt(progress_.routed_tokens)},
                     {"plt_rollback", partial_->meter().plt_rollback(progress_.routed_tokens)}};
  const size_t experts = progress_.routed_tokens.size();
  if (experts > CKPT_EXPERT_TOKENS_MAX) return;  // so large a model does without
  request.expert_tokens.reserve(experts);
  for (uint32_t i = 0; i < experts; ++i) {
    request.expert_tokens.push_back({i / placement_.experts, i % placement_.experts,
                                     static_cast<uint64_t>(progress_.routed_tokens[i])});
  }
  const std::vector<int64_t> lost = partial_->lost();
  request.expert_lost.assign(lost.begin(), lost.end());
}

}  // namespace moetrain
