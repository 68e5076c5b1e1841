#include "trainer/rank/rank_state.h"

#include <algorithm>
#include <utility>

#include "trainer/checkpoint/plan.h"
#include "trainer/elastic/rank_device.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/router_trace_file.h"

namespace moetrain {

namespace {

// On the host a copy blocks the step (AutoLimits). A GPU copies while it computes, so a copy may
// take as long as the step.
constexpr double kCopyPartMaxOnGpu = 1;

PaceOptions pace_options(const RankOptions& options, const HeldState& held,
                         const PartialCheckpoint& checkpoint) {
  const PartialOptions& partial = options.partial;
  const uint32_t experts = options.config.model.experts;
  PaceOptions pace{.auto_every = options.checkpoint_auto,
                   .auto_experts = partial.k_auto,
                   .memory = partial.k_snapshot != 0,
                   .every = options.checkpoint_every,
                   .turns = options.checkpoint_turns,
                   .k = partial.k,
                   .experts = experts};
  if (partial.staleness_max != 0) {
    const uint32_t least = (experts + partial.staleness_max - 1) / partial.staleness_max;
    pace.k_least = std::clamp(least, 1u, experts);
  }
  if (!partial.k_snapshot_auto) pace.k_snapshot = std::min(partial.k_snapshot, experts);
  uint64_t chosen_bytes = 0;
  for (const StateUnit& unit : held.units) {
    if (checkpoint.may_omit(unit)) chosen_bytes += unit.bytes;
  }
  pace.expert_bytes = chosen_bytes / experts;
  pace.dense_bytes = total_bytes(held.units) - pace.expert_bytes * experts;
  if (!held.device->is_host()) pace.limits.copy_part_max = kCopyPartMaxOnGpu;
  return pace;
}

uint32_t first_rank(const RankOptions& options) { return options.rank % options.ranks; }

// The state that a rank holds before the first epoch; `memory` is not set yet.
Result<HeldState> first_state(const RankOptions& options) {
  const ModelConfig& shape = options.config.model;
  CKPT_ASSIGN(ComputePlacement placement, first_placement(options));
  CKPT_ASSIGN(auto device, make_rank_device(options.device, options.config.precision, options.gpu,
                                            options.collective_timeout_ms));
  CKPT_ASSIGN(auto store, make_expert_store(*device, shape, placement,
                                            make_ownership(options.expert_state, placement),
                                            first_rank(options)));
  std::shared_ptr<const RouterTrace> trace;
  if (!options.router_trace.empty()) {
    CKPT_ASSIGN(trace, load_router_trace(options.router_trace));
  }
  CKPT_ASSIGN(auto model,
              Model::create(*device, shape, std::move(store), options.schedule, std::move(trace)));
  HeldState held{.units = state_units(shape),
                 .device = std::move(device),
                 .model = std::move(model),
                 .placement = std::move(placement),
                 .stamps = ExpertStamps({shape.layers, shape.experts}),
                 .trainer_unit = {},
                 .memory = std::nullopt};
  held.trainer_unit.resize(held.units[kTrainerUnit].bytes);
  return held;
}

}  // namespace

Status HeldState::hold(const ComputePlacement& next, uint32_t rank) {
  return hold(next, rank, model->experts().release());
}

Status HeldState::hold(const ComputePlacement& next, uint32_t rank, std::vector<OwnedRange> owned) {
  placement = next;
  const ExpertState state = model->experts().ownership().state();
  CKPT_ASSIGN(auto store,
              make_expert_store(*device, model->config(), placement,
                                make_ownership(state, placement), rank, std::move(owned)));
  CKPT_TRY(model->replace_experts(std::move(store)));
  remap();
  return {};
}

void HeldState::remap() { memory.emplace(units, *model, trainer_unit, stamps); }

Result<std::unique_ptr<RankState>> RankState::prepare(const RankOptions& options,
                                                      EventWriter& events,
                                                      const RankRequests& asked) {
  if (options.pin) CKPT_TRY(pin_to_cpu(options.rank));
  CKPT_TRY(validate(options.config, options.ranks));
  CKPT_ASSIGN(Corpus corpus, Corpus::load(options.data));
  const ModelConfig& shape = options.config.model;
  CKPT_TRY(corpus.check_fits(shape.seq_len));
  CKPT_ASSIGN(HeldState held, first_state(options));
  CKPT_TRY(validate(options.partial, shape.experts));
  // The last survivor of an elastic group saves the whole model alone.
  const auto share_of = [&held](const RankOptions& of) {
    return of.moves_experts()
               ? total_bytes(held.units)
               : largest_share(held.units, held.model->experts().ownership(), of.partial.dense);
  };
  RankOptions restarts = options;
  restarts.elastic = false;
  CKPT_ASSIGN(Member member,
              Member::open(options, held.units,
                           {.bytes = share_of(options), .restart_bytes = share_of(restarts)}));
  std::unique_ptr<RankState> state(
      new RankState(options, events, asked, std::move(corpus), std::move(held), std::move(member)));
  if (!state->held.device->is_host()) {
    CKPT_ASSIGN(state->link, make_cuda_link(state->member.session(), *state->held.device,
                                            options.collective_timeout_ms));
  }
  return state;
}

RankState::RankState(const RankOptions& with_options, EventWriter& with_events,
                     const RankRequests& with_requests, Corpus with_corpus, HeldState with_state,
                     Member with_member)
    : options(with_options),
      events(with_events),
      asked(with_requests),
      corpus(std::move(with_corpus)),
      held(std::move(with_state)),
      trainer(options.config, corpus.train()),
      partial(held.units, held.placement, options.partial, options.expert_state),
      pacer(pace_options(options, held, partial)),
      member(std::move(with_member)),
      seat{.rank = first_rank(options)} {
  held.remap();
}

std::string RankState::where() const {
  return fmt::format("run {} step {}", options.run, progress.step);
}

void RankState::say(const std::string& text) const { events.log(where() + ": " + text); }

void RankState::log_once(const std::string& text) const {
  if (seat.rank == 0) say(text);
}

void RankState::settle_device() {
  if (link) link->wait_all_gathered();
}

}  // namespace moetrain
