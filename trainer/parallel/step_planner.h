// StepPlanner: plans the placement of each training step, concurrently with training.
//
// Keeps the counts of the last steps (load_window.h), and plans step s from the counts up to s - 2
// alone. So a plan does not depend on timing: it is the same on all ranks, and after a restart.
// Without counts the plan is that of `static`.
//
//   planner.take(s)         the placement of step s; waits until it is planned
//   planner.start(s + 1)    plans on the worker thread from counts up to s - 1
//   ... step s ...
//   planner.record(counts)  those of step s
//
// Used from one thread. The worker thread ends with the planner, after the plan it is at.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>

#include "trainer/placement/compute_placement.h"
#include "trainer/placement/load_window.h"
#include "trainer/placement/step_plan.h"

namespace moetrain {

struct StepPlannerOptions {
  StepPlanOptions plan;
  // The plan changes at steps that are multiples of it. 0: never, the plan stays `static`.
  uint64_t replan_every = 1;
  bool threaded = true;  // false: no thread, start() plans
};

struct StepPlannerTimes {
  uint64_t plans = 0;
  uint64_t waits = 0;       // of take(), for a plan that was not ready
  int64_t waited_ns = 0;    // in these
  int64_t planning_ns = 0;  // of all plans
  bool operator==(const StepPlannerTimes&) const = default;
};

class StepPlanner {
 public:
  // window: the counts that are known, of the plan's layers and experts. Errors: those of
  // validate(StepPlanOptions).
  static Result<std::unique_ptr<StepPlanner>> make(const StepPlannerOptions& options,
                                                   LoadWindow window);
  StepPlanner(const StepPlanner&) = delete;
  StepPlanner& operator=(const StepPlanner&) = delete;

  const LoadWindow& window() const { return window_; }
  const StepPlannerTimes& times() const { return times_; }

  // Step window().last_step() + 1 is done. routed: as LoadWindow::record().
  void record(std::span<const int64_t> routed);

  // Begins to plan step `step`, unless the plan does not change there. The step of an earlier
  // start() was taken. Steps up to step - 2 are recorded.
  void start(uint64_t step);
  // The placement of step `step`, valid until the next take(). Steps never go back. start() first
  // where the caller did not. Errors: those of plan_step(); the planner is of no use afterwards.
  Result<const ComputePlacement*> take(uint64_t step);

 private:
  using Clock = std::chrono::steady_clock;

  struct Job {
    uint64_t step = 0;
    LayerLoads loads;
  };
  struct Answer {
    Result<ComputePlacement> placement;
    int64_t planning_ns = 0;
  };

  StepPlanner(const StepPlannerOptions& options, LoadWindow window);
  std::optional<uint64_t> step_to_plan(uint64_t step) const;
  Answer answer(const Job& job) const;
  void work(const std::stop_token& stop);
  Answer wait(Clock::time_point begin, bool late);

  const StepPlannerOptions options_;
  LoadWindow window_;
  StepPlannerTimes times_;
  std::optional<uint64_t> started_;  // the step whose plan was started and not taken
  std::optional<uint64_t> planned_;  // the step that placement_ was planned for
  ComputePlacement placement_;

  std::mutex mutex_;  // of job_ and answer_
  std::condition_variable_any changed_;
  std::optional<Job> job_;
  std::optional<Answer> answer_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace moetrain
