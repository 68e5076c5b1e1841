#include "trainer/parallel/step_planner.h"

#include <utility>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

int64_t ns_since(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
}

// The newest counts that the plan of a step may use.
uint64_t last_counts_for(uint64_t step) { return step < 2 ? 0 : step - 2; }

}  // namespace

Result<std::unique_ptr<StepPlanner>> StepPlanner::make(const StepPlannerOptions& options,
                                                       LoadWindow window) {
  CKPT_TRY(validate(options.plan));
  CKPT_ASSERT(window.layers() == options.plan.layers && window.experts() == options.plan.experts);
  return std::unique_ptr<StepPlanner>(new StepPlanner(options, std::move(window)));
}

StepPlanner::StepPlanner(const StepPlannerOptions& options, LoadWindow window)
    : options_(options), window_(std::move(window)) {
  if (!options_.threaded) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

void StepPlanner::record(std::span<const int64_t> routed) { window_.record(routed); }

// The step whose plan `step` uses, if it is not planned yet. If the counts for that plan are gone
// (a restart between two distant plans), `step` itself.
std::optional<uint64_t> StepPlanner::step_to_plan(uint64_t step) const {
  const uint64_t every = options_.replan_every;
  const uint64_t due = every == 0 ? 0 : step - step % every;
  const std::optional<uint64_t>& newest = started_ ? started_ : planned_;
  if (newest && *newest >= due) return std::nullopt;
  return window_.covers(last_counts_for(due)) ? due : step;
}

void StepPlanner::start(uint64_t step) {
  CKPT_ASSERT(step > 0);
  const std::optional<uint64_t> due = step_to_plan(step);
  if (!due) return;
  CKPT_ASSERT(!started_);
  CKPT_ASSERT(last_counts_for(*due) <= window_.last_step());
  started_ = due;
  Job job{*due, window_.sum(last_counts_for(*due))};
  if (!options_.threaded) {
    answer_ = answer(job);
    return;
  }
  const std::lock_guard lock(mutex_);
  job_ = std::move(job);
  changed_.notify_all();
}

Result<const ComputePlacement*> StepPlanner::take(uint64_t step) {
  const Clock::time_point begin = Clock::now();
  const bool late = !started_;
  start(step);
  if (!started_) return &placement_;
  Answer answered = wait(begin, late);
  ++times_.plans;
  times_.planning_ns += answered.planning_ns;
  if (!answered.placement.ok()) return answered.placement.error();
  placement_ = std::move(*answered.placement);
  planned_ = std::exchange(started_, std::nullopt);
  return &placement_;
}

StepPlanner::Answer StepPlanner::answer(const Job& job) const {
  const Clock::time_point begin = Clock::now();
  const auto plan = [&]() -> Result<ComputePlacement> {
    CKPT_ASSIGN(std::vector<LayerSlots> layers, plan_step(options_.plan, job.loads));
    return make_placement(std::move(layers), options_.plan.experts, options_.plan.ranks,
                          options_.plan.node_of_rank);
  };
  Result<ComputePlacement> placement = plan();
  return {std::move(placement), ns_since(begin)};
}

// late: the plan was not started before it was asked for, at `begin`.
StepPlanner::Answer StepPlanner::wait(Clock::time_point begin, bool late) {
  std::unique_lock lock(mutex_);
  if (late || !answer_) {
    changed_.wait(lock, [this] { return answer_.has_value(); });
    ++times_.waits;
    times_.waited_ns += ns_since(begin);
  }
  Answer answered = std::move(*answer_);
  answer_.reset();
  return answered;
}

void StepPlanner::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return job_.has_value(); })) {
    const Job job = std::move(*job_);
    job_.reset();
    lock.unlock();
    Answer answered = answer(job);
    lock.lock();
    answer_ = std::move(answered);
    changed_.notify_all();
  }
}

}  // namespace moetrain
