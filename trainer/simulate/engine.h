// The simulation: one system, one cluster, one trace, in virtual time. Pure: values in, values out.
//
// All time of the trace is of one of five kinds, to the microsecond:
//   train       steps that count in the end, and the step that the end of the trace cuts off
//   checkpoint  training blocked by a checkpoint
//   recover     detection of a loss, restart of processes and groups, loading or moving of state;
//   also
//               admission of joining nodes, and moves of experts after a load change
//   redo        training lost by a failure: steps after the checkpoint that all ranks rewound
//               to, the step in flight
//   idle        too few nodes to train
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/simulate/plan.h"
#include "trainer/simulate/system.h"
#include "trainer/simulate/trace.h"

namespace moetrain::simulate {

enum class Kind : uint8_t { kTrain, kCheckpoint, kRecover, kRedo, kIdle };
inline constexpr size_t kKinds = 5;
std::string_view kind_name(Kind kind);

struct SystemOptions {
  uint64_t checkpoint_steps = 1;  // >= 1
  // Joining nodes are admitted once they have gathered; else at the next recovery.
  bool take_joiners = true;
};

// A point of the curve: samples up to this time that count in the end.
struct CurvePoint {
  Micros at = 0;
  double samples = 0;
  bool operator==(const CurvePoint&) const = default;
};

struct Outcome {
  std::array<Micros, kKinds> time{};  // by Kind; the sum is the trace
  double samples = 0;                 // samples that count
  double ideal_samples = 0;           // of all live nodes, undisturbed and evenly loaded
  uint64_t steps = 0;
  uint64_t failures = 0;     // losses of training nodes; simultaneous ones count once
  uint64_t rewinds = 0;      // failures after which all ranks rewound
  uint64_t rolled_back = 0;  // experts restored alone
  uint64_t checkpoints = 0;
  uint64_t skipped = 0;  // due while the previous one was in flight
  double plt = 0;
  std::vector<CurvePoint> curve;  // both coordinates ascend
  bool operator==(const Outcome&) const = default;

  Micros total() const;
  Micros of(Kind kind) const { return time[static_cast<size_t>(kind)]; }
  double goodput() const;  // samples per second of the trace
  double ettr() const;     // train / total: effective training time ratio
};

// Inputs that all simulations on a cluster share.
struct Scenario {
  const CostModel& model;
  const NodeTrace& trace;
  const LoadModel& load;
  Planner& planner;
};

// kInvalidArgument if the token counts of such a trace could exceed 63 bits, or an error of
// planners.
Result<Outcome> simulate(const Scenario& scenario, const System& system,
                         const SystemOptions& options);

// The interval the model file gives this system.
SystemOptions default_options(const CostModel& model, const System& system);

// Samples if training never stops, all live nodes work, and experts are evenly loaded.
double ideal_samples(const CostModel& model, const NodeTrace& trace);

}  // namespace moetrain::simulate
