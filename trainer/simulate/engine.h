// The simulation: one system, one cluster, one trace, in virtual time. Pure: values in, values out.
//
// All time of the trace is of one of five kinds, to the microsecond:
//   train       steps that count in the end, and the step that the end of the trace cuts off
//   checkpoint  training stood still for a checkpoint
//   recover     a loss was noticed, processes and groups began anew, state was loaded or moved;
//   also
//               taking in joiners, and moving experts after the load changed
//   redo        training that a loss threw away: steps after the checkpoint that everybody rewound
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
  // Joiners are taken in as soon as they have gathered; else with the next recovery.
  bool take_joiners = true;
};

// A point of the curve: samples that are known in the end to count, up to this time.
struct CurvePoint {
  Micros at = 0;
  double samples = 0;
  bool operator==(const CurvePoint&) const = default;
};

struct Outcome {
  std::array<Micros, kKinds> time{};  // by Kind; the sum is the trace
  double samples = 0;                 // that count
  double ideal_samples = 0;           // of all nodes that were there, undisturbed and evenly loaded
  uint64_t steps = 0;
  uint64_t failures = 0;     // losses of nodes that trained; those of one moment are one
  uint64_t rewinds = 0;      // of them, those that all rewound after
  uint64_t rolled_back = 0;  // experts that came back alone
  uint64_t checkpoints = 0;
  uint64_t skipped = 0;  // that were due while the one before was still on its way
  double plt = 0;
  std::vector<CurvePoint> curve;  // both coordinates ascend
  bool operator==(const Outcome&) const = default;

  Micros total() const;
  Micros of(Kind kind) const { return time[static_cast<size_t>(kind)]; }
  double goodput() const;  // samples per second of the trace
  double ettr() const;     // train / total: effective training time ratio
};

// What is common to all simulations on a cluster.
struct Scenario {
  const CostModel& model;
  const NodeTrace& trace;
  const LoadModel& load;
  Planner& planner;
};

// kInvalidArgument if the counts of tokens of such a trace could exceed 63 bits, or what planners
// say.
Result<Outcome> simulate(const Scenario& scenario, const System& system,
                         const SystemOptions& options);

// The interval the model file gives this system.
SystemOptions default_options(const CostModel& model, const System& system);

// Training never stops, all nodes that are there work, experts are evenly loaded.
double ideal_samples(const CostModel& model, const NodeTrace& trace);

}  // namespace moetrain::simulate
