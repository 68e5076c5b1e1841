// The part of RankRun between the model and the checkpoints: what an epoch begins with, and what a
// snapshot takes.
#include <algorithm>

#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/restore.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/elastic/rank_run.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using Kind = RankEvent::Kind;
namespace client = ckpt::client;

namespace {

// ckpt.h: at most so many go with a commit. A larger model does without.
constexpr size_t kExpertTokensMax = 65'536;

}  // namespace

Status RankRun::restore(const client::Epoch& epoch, RankEvent& event) {
  stamps_->clear();
  if (epoch.resume) {
    events_.write({.kind = Kind::kRestoring, .epoch = epoch.epoch});
    CKPT_ASSIGN(
        const RestoreSummary summary,
        restore_units(member_->session(), options_.run, *epoch.resume, units_,
                      units_of_rank(units_, placement_, options_.rank), *memory_, link_.get()));
    model_->parameters_changed();
    CKPT_TRY(take_over(*epoch.resume));
    for (const std::string& note : summary.notes) events_.log(where() + ": " + note);
    event.resumed = true;
    event.bytes_memory = summary.bytes_memory;
    event.bytes_disk = summary.bytes_disk;
    event.stale_units = summary.stale_units;
  } else {
    model_->initialise(options_.config.seed);
    progress_ = {};
    partial_->start();
  }
  saved_step_ = progress_.step;
  snapshot_due_ = false;
  failed_snapshot_ = 0;
  lost_snapshots_.clear();
  event.step = progress_.step;
  return {};
}

Status RankRun::settle(Comm& comm, const client::ViewPoint& view, RankEvent& event) {
  {
    const EpochWatch::Loan loan(*watch_);
    CKPT_TRY(comm.all_reduce_max(stamps_->counts()));
  }
  const ModelConfig& shape = options_.config.model;
  const ExpertGrid grid{shape.layers, shape.experts};
  progress_.routed_tokens.resize(grid.size());
  const Result<RecoveryLoss> loss =
      partial_->resume(saved_partial_, progress_.routed_tokens, *stamps_);
  if (!loss.ok()) {
    return make_error(loss.error().code, "run {} step {} {}", options_.run, view.step,
                      loss.error().message);
  }
  progress_.expert_updates.clear();
  for (size_t i = 0; i < grid.size(); ++i) {
    progress_.expert_updates.push_back(stamps_->at(ExpertPart::kOptimizer, i).updates);
  }
  resumed_at_ = static_cast<int64_t>(progress_.step);
  event.lost_tokens = loss->tokens;
  event.plt = partial_->plt(progress_.routed_tokens);
  if (options_.rank == 0 && loss->tokens > 0) {
    events_.log(
        fmt::format("{}: {} tokens of stale experts are lost, {:.3f} % of all so far; {}"
                    " experts of each layer from now on",
                    where(), loss->tokens, 100 * event.plt, partial_->k()));
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
  if (state->corpus_crc32c != corpus_->crc32c() && options_.rank == 0) {
    events_.log(
        fmt::format("{}: the data has changed since ({} bytes then, {} now); the run goes"
                    " on, but not as it would have",
                    name, state->corpus_bytes, corpus_->bytes()));
  }
  progress_ = std::move(state->progress);
  saved_partial_ = std::move(state->partial);
  return {};
}

Result<Snapshotter::Request> RankRun::request(uint32_t attempt, bool full) {
  const size_t experts = size_t{placement_.layers()} * placement_.experts;
  progress_.routed_tokens.resize(experts);  // before the first step there are none
  progress_.expert_updates.resize(experts);
  PartialCheckpoint::Plan plan = partial_->next(
      progress_.step, {progress_.routed_tokens, progress_.expert_updates}, full, *stamps_);
  const TrainerState state{.progress = progress_,
                           .config = to_json(options_.config),
                           .corpus_bytes = corpus_->bytes(),
                           .corpus_crc32c = corpus_->crc32c(),
                           .placement = placement_,
                           .partial = partial_->state()};
  CKPT_ASSIGN(const std::vector<std::byte> unit, encode(state));
  std::copy(unit.begin(), unit.end(), trainer_unit_.begin());
  if (options_.tell_routing && options_.partial.k != 0 && options_.rank == 0) {
    events_.write(
        {.kind = Kind::kTaking, .step = progress_.step, .experts = std::move(plan.experts)});
  }
  Snapshotter::Request request{.step = progress_.step,
                               .attempt = attempt,
                               .units = std::move(plan.units),
                               .fragments = std::move(plan.fragments)};
  if (options_.partial.k != 0) {
    request.staleness_max = partial_->staleness_max() * options_.checkpoint_every;
  }
  if (options_.rank != 0) return request;
  request.metrics = {{"loss", last_loss_},
                     {"tokens", static_cast<double>(progress_.tokens)},
                     {"plt", partial_->plt(progress_.routed_tokens)}};
  if (experts > kExpertTokensMax) return request;
  for (uint32_t i = 0; i < experts; ++i) {
    request.expert_tokens.push_back({i / placement_.experts, i % placement_.experts,
                                     static_cast<uint64_t>(progress_.routed_tokens[i])});
  }
  return request;
}

}  // namespace moetrain
