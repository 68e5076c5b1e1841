#include "trainer/simulate/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/simulate/engine_impl.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[kKinds] = {"train", "checkpoint", "recover", "redo", "idle"};
  return kNames[static_cast<size_t>(kind)];
}

Micros Outcome::total() const { return std::accumulate(time.begin(), time.end(), Micros{0}); }

double Outcome::goodput() const {
  return total() > 0 ? samples / (static_cast<double>(total()) / kSecond) : 0;
}

double Outcome::ettr() const {
  return total() > 0 ? static_cast<double>(of(Kind::kTrain)) / static_cast<double>(total()) : 0;
}

SystemOptions default_options(const CostModel& model, const System& system) {
  return {.checkpoint_steps = static_cast<uint64_t>(model.*system.steps)};
}

double ideal_samples(const CostModel& model, const NodeTrace& trace) {
  const auto per_second = [&](double nodes) {
    const auto ranks = static_cast<uint32_t>(nodes * model.ranks_per_node);
    if (ranks == 0) return 0.0;
    const StepShape shape{std::min(ep_ranks(model), ranks), ranks,
                          static_cast<uint32_t>(model.static_slots)};
    const std::vector<double> even{1.0};
    const auto step = static_cast<double>(step_time(model, shape, even)) / kSecond;
    return ranks * model.samples_per_rank / step;
  };
  double samples = 0;
  double nodes = 0;
  Micros from = 0;
  for (const NodeEvent& event : trace.events) {
    const Micros at = std::min(event.at, trace.end);
    samples += per_second(nodes) * static_cast<double>(at - from) / kSecond;
    from = at;
    nodes += event.add ? 1 : -1;
  }
  return samples + per_second(nodes) * static_cast<double>(trace.end - from) / kSecond;
}

Engine::Engine(const Scenario& scenario, const System& system, const SystemOptions& options)
    : model_(scenario.model),
      trace_(scenario.trace),
      load_(scenario.load),
      planner_(scenario.planner),
      system_(system),
      options_(options),
      cluster_(trace_.names.size()),
      member_(trace_.names.size()) {
  if (system.partial) {
    ages_.emplace(ExpertAges::Options{
        .grid = load_.grid(),
        .k = static_cast<uint32_t>(model_.experts_per_checkpoint),
        .selector = system.from_replicas ? Selector::kRiskAware : Selector::kLoadAware,
        .memory_holds_all = !system.to_peer});
    checkpoints_ = Checkpoints(ages_->beginning());
  }
}

// --- time ----------------------------------------------------------------------------------------

Micros Engine::next_event() const {
  if (event_ == trace_.events.size()) return trace_.end;
  return std::min(trace_.events[event_].at, trace_.end);
}

bool Engine::apply_events(const std::vector<bool>& busy) {
  bool lost = false;
  const Micros at = next_event();
  for (; event_ < trace_.events.size() && trace_.events[event_].at == at; ++event_) {
    const NodeEvent& event = trace_.events[event_];
    if (event.add) {
      cluster_.add(event.node);
      if (join_due_ == kNever) join_due_ = at + micros(model_.join_wait_s);
    } else {
      cluster_.remove(event.node);
      lost = lost || busy[event.node];
    }
  }
  return lost;
}

void Engine::pass(Kind kind, Micros duration) {
  if (duration == 0) return;
  note_curve();
  now_ += duration;
  time_[static_cast<size_t>(kind)] += duration;
  note_curve();
}

bool Engine::spend(Kind kind, Micros duration, const std::vector<bool>& busy) {
  const Micros until = duration < trace_.end - now_ ? now_ + duration : trace_.end;
  while (next_event() <= until) {
    pass(kind, next_event() - now_);
    if (now_ == trace_.end) return false;
    if (apply_events(busy)) return false;
  }
  pass(kind, until - now_);
  return now_ < trace_.end;
}

void Engine::idle() {
  pass(Kind::kIdle, next_event() - now_);
  if (now_ < trace_.end) apply_events(member_);
  noticed_ = true;
}

// --- training ------------------------------------------------------------------------------------

uint64_t Engine::steps_until_boundary() const {
  uint64_t boundary = std::min(next_checkpoint_, load_.epoch_end(progress_.step));
  if (system_.placement != PolicyName::kStatic) boundary = std::min(boundary, next_replan_);
  uint64_t steps = boundary - progress_.step;
  if (join_due_ != kNever && options_.take_joiners) {
    const Micros left = std::max<Micros>(join_due_ - now_, 0);
    steps = std::min(steps, static_cast<uint64_t>((left + step_time_ - 1) / step_time_));
  }
  return steps;
}

void Engine::do_steps(uint64_t count) {
  if (count == 0) return;
  const Micros duration = static_cast<Micros>(count) * step_time_;
  note_curve();
  if (ages_) ages_->train(count, ranks_, load_.loads(load_.epoch_of(progress_.step)));
  progress_.step += count;
  progress_.rank_steps += count * ranks_;
  now_ += duration;
  time_[static_cast<size_t>(Kind::kTrain)] += duration;
  progress_.train = time_[static_cast<size_t>(Kind::kTrain)];
  note_curve();
}

void Engine::lose_node(Micros into_step) {
  pass(Kind::kRedo, into_step);
  ++outcome_.failures;
  training_ = false;
  noticed_ = false;
  for (const uint64_t snapshot : checkpoints_.abort(now_)) ages_->failed(snapshot);
  unsent_ = std::min(unsent_ + sending_, load_.grid().size());
  sending_ = 0;
}

// Steps until something happens: the last of them may be under way when it does.
Status Engine::train() {
  const uint64_t wanted = steps_until_boundary();
  const auto fit = static_cast<uint64_t>((next_event() - now_) / step_time_);
  const uint64_t count = std::min(wanted, fit);
  do_steps(count);
  if (count == wanted) return at_boundary();
  // Events during a step. The step continues unless a member is lost or the trace ends.
  const Micros step_end = now_ + step_time_;
  while (next_event() < step_end) {
    const Micros at = next_event();
    if (at == trace_.end) {
      pass(Kind::kTrain, at - now_);
      return {};
    }
    if (apply_events(member_)) {
      lose_node(at - now_);
      return {};
    }
  }
  do_steps(1);
  if (count + 1 == wanted) return at_boundary();
  return {};
}

Status Engine::at_boundary() {
  if (now_ == trace_.end) return {};
  if (progress_.step >= next_checkpoint_ && !take_checkpoint()) return {};
  const bool joiners = join_due_ <= now_ && options_.take_joiners;
  if (joiners) {
    CKPT_TRY(join());
    if (!training_ || now_ == trace_.end) return {};
  }
  const bool elastic = system_.placement != PolicyName::kStatic;
  if (elastic && progress_.step >= next_replan_) {
    CKPT_TRY(replan());
    if (!training_ || now_ == trace_.end) return {};
  }
  update_pace();
  return {};
}

Micros Engine::pace(const Groups& groups, uint32_t epoch) const {
  const auto& loads = load_.loads(epoch);
  uint32_t ranks = 0;
  for (const Group& group : groups) ranks += group.plan->ranks;
  Micros slowest = 1;
  const Plan* before = nullptr;  // most groups have the same
  for (const Group& group : groups) {
    if (group.plan.get() == before) continue;
    before = group.plan.get();
    const StepShape shape{before->ranks, ranks, before->slots};
    slowest = std::max(slowest, step_time(model_, shape, imbalance(*before, loads)));
  }
  return slowest;
}

void Engine::update_pace() {
  ranks_ = 0;
  for (const Group& group : groups_) ranks_ += group.plan->ranks;
  step_time_ = pace(groups_, load_.epoch_of(progress_.step));
}

// --- the whole -----------------------------------------------------------------------------------

void Engine::note_curve() {
  const CurvePoint point{now_, static_cast<double>(progress_.rank_steps) * model_.samples_per_rank};
  std::vector<CurvePoint>& curve = outcome_.curve;
  while (!curve.empty() && curve.back().samples > point.samples) curve.pop_back();
  if (!curve.empty() && curve.back().at == point.at) {
    curve.back() = point;
  } else {
    curve.push_back(point);
  }
}

Outcome Engine::outcome() const {
  Outcome result = outcome_;
  result.time = time_;
  result.steps = progress_.step;
  result.samples = static_cast<double>(progress_.rank_steps) * model_.samples_per_rank;
  result.ideal_samples = ideal_samples(model_, trace_);
  result.plt = ages_ ? ages_->plt() : 0;
  return result;
}

Result<Outcome> Engine::run() {
  next_checkpoint_ = options_.checkpoint_steps;
  next_replan_ = static_cast<uint64_t>(model_.replan_steps);
  note_curve();
  if (next_event() == 0 && trace_.end > 0) apply_events(member_);
  while (now_ < trace_.end) {
    if (training_) {
      CKPT_TRY(train());
    } else if (usable_nodes() == 0) {
      idle();
    } else {
      CKPT_TRY(form());
    }
  }
  note_curve();
  Outcome result = outcome();
  CKPT_ASSERT(result.total() == trace_.end);
  return result;
}

Result<Outcome> simulate(const Scenario& scenario, const System& system,
                         const SystemOptions& options) {
  // Tokens are counted in integers; so are steps.
  const double ranks =
      static_cast<double>(scenario.trace.names.size()) * scenario.model.ranks_per_node;
  const StepShape shape{1, 1, 1};
  const std::vector<double> even{1.0};
  const double steps = static_cast<double>(scenario.trace.end) /
                       static_cast<double>(step_time(scenario.model, shape, even));
  if (ranks * steps * static_cast<double>(kLoadUnits) > 0x1.0p61) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{:.3g} steps on {} ranks: too many to count tokens exactly; give a shorter "
                      "trace or longer steps",
                      steps, ranks);
  }
  if (options.checkpoint_steps == 0) {
    return make_error(ErrorCode::kInvalidArgument, "{}: a checkpoint every 0 steps", system.name);
  }
  return Engine(scenario, system, options).run();
}

}  // namespace moetrain::simulate
