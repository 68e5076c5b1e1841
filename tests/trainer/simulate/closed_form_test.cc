// Cases whose result a formula gives.
#include <cmath>

#include "tests/trainer/simulate/cluster.h"

namespace simtest {
namespace {

TEST(ClosedForm, WithoutFailuresAllTimeTrains) {
  for (const System& system : systems()) {
    const Outcome outcome = run(plain_model(), trace_of(4, {}, 1000), system.name, 10);
    EXPECT_EQ(outcome.ettr(), 1) << system.name;
    EXPECT_EQ(outcome.of(Kind::kTrain), 1000 * kSecond) << system.name;
    EXPECT_EQ(outcome.samples, 4000) << system.name;
    EXPECT_EQ(outcome.ideal_samples, 4000) << system.name;
    EXPECT_EQ(outcome.plt, 0) << system.name;
  }
}

// A checkpoint of C seconds after every T of training: T / (T + C).
TEST(ClosedForm, CheckpointsCostTheirShare) {
  CostModel model = plain_model();
  model.remote_write_bytes_per_s = model.checkpoint_bytes() / 2.5;
  const Outcome outcome = run(model, trace_of(4, {}, 10 * 12.5 + 1), "ds", 10);
  EXPECT_EQ(outcome.of(Kind::kCheckpoint), micros(25));
  EXPECT_EQ(outcome.of(Kind::kTrain), 101 * kSecond);
  EXPECT_EQ(outcome.checkpoints, 10U);
}

// One loss 17.5 s in, a checkpoint every 5 s, 3 s to notice and begin again: back to 15.
TEST(ClosedForm, LossInRestartingSystemMatchesFormula) {
  CostModel model = plain_model();
  model.timeout_s = 1;
  model.restart_s = 2;
  const Outcome outcome = run(model, trace_of(4, {{17.5, false, 3}}, 100), "ds", 5);
  EXPECT_EQ(outcome.of(Kind::kRedo), micros(2.5));
  EXPECT_EQ(outcome.of(Kind::kRecover), micros(3));
  EXPECT_EQ(outcome.of(Kind::kTrain), micros(94.5));
  // 15 steps of four ranks, then of two: a group of two nodes is broken.
  EXPECT_EQ(outcome.samples, 15 * 4 + 79 * 2);
  EXPECT_EQ(outcome.rewinds, 1U);
}

// The same with replicas: the step in flight is lost, nothing else, and all three survivors work.
TEST(ClosedForm, LossInElasticSystemMatchesFormula) {
  CostModel model = plain_model();
  model.timeout_s = 1;
  model.regroup_s = 2;
  model.ours_detect_s = 0.25;
  model.ours_regroup_s = 0.5;
  const NodeTrace trace = trace_of(4, {{17.5, false, 3}}, 100);
  const Outcome lazarus = run(model, trace, "lazarus", 5);
  EXPECT_EQ(lazarus.of(Kind::kRedo), micros(0.5));
  EXPECT_EQ(lazarus.of(Kind::kRecover), micros(3));
  EXPECT_EQ(lazarus.samples, 17 * 4 + 79 * 3);
  const Outcome ours = run(model, trace, "ours", 5);
  EXPECT_EQ(ours.of(Kind::kRedo), micros(0.5));
  EXPECT_EQ(ours.of(Kind::kRecover), micros(0.75));
  EXPECT_EQ(ours.samples, 17 * 4 + 81 * 3);
}

// Exponential failures of mean M, at which a spare takes over; training T, checkpoint C, recovery R
// (which a failure begins anew). Daly (FGCS 2006): a segment takes M e^(R/M) (e^((T+C)/M) - 1).
TEST(ClosedForm, RandomFailuresMatchDaly) {
  CostModel model = plain_model();
  const double mean = 200;
  const double stall = 4;
  const double restart = 12;
  model.remote_write_bytes_per_s = model.checkpoint_bytes() / stall;
  model.restart_s = restart;
  const auto trace = make_trace({.nodes = 2,
                                 .between_failures = micros(mean),
                                 .exponential = true,
                                 .repair = 0,
                                 .duration = 4'000'000 * kSecond,
                                 .seed = 5});
  ASSERT_TRUE(trace.ok());
  double best = 0;
  uint64_t best_steps = 0;
  for (const uint64_t steps : {5, 10, 20, 40, 80, 160, 320}) {
    const auto work = static_cast<double>(steps);
    const double expected =
        work / (mean * std::exp(restart / mean) * (std::exp((work + stall) / mean) - 1));
    // 20,000 failures: a standard deviation of less than 1 %.
    const double measured = run(model, *trace, "ds", steps).ettr();
    EXPECT_NEAR(measured, expected, 0.03 * expected) << steps;
    if (measured > best) best_steps = steps;
    best = std::max(best, measured);
  }
  // Young (CACM 1974): sqrt(2 C M) = 40.
  EXPECT_EQ(best_steps, 40U);
}

// The only holder of two experts of a layer dies. These roll back to the last snapshot, 2.5 s ago;
// all else continues. PLT: their tokens since that snapshot, as a share of all.
TEST(ClosedForm, LostExpertsRollBackAlone) {
  CostModel model = plain_model();
  model.slots_per_rank = 2;
  model.replicas_min = 1;
  const NodeTrace trace = trace_of(2, {{12.5, false, 1}, {12.5, true, 1}}, 100);
  const Outcome ours = run(model, trace, "ours", 5);
  EXPECT_EQ(ours.rewinds, 0U);
  EXPECT_EQ(ours.rolled_back, 4U);  // of two layers
  EXPECT_EQ(ours.of(Kind::kRedo), micros(0.5));
  // Steps 11 and 12 of the half of the experts, of 99 steps.
  EXPECT_EQ(ours.steps, 99U);
  EXPECT_NEAR(ours.plt, 0.5 * 2 / 99, 1e-6);
}

// moc: all ranks rewind to a checkpoint at which two of four experts were written.
TEST(ClosedForm, PartialCheckpointsLoseTokens) {
  CostModel model = plain_model();
  model.experts_per_checkpoint = 2;
  const NodeTrace trace = trace_of(2, {{12.5, false, 1}, {12.5, true, 1}}, 100);
  const Outcome moc = run(model, trace, "moc", 5);
  EXPECT_EQ(moc.rewinds, 1U);
  EXPECT_EQ(moc.of(Kind::kRedo), micros(2.5));
  // The first checkpoint, at 5, is full; at 10 two of four are written. Node 1 held two: it depends
  // on the selector's order whether 0, 1 or 2 of them are five steps old, but no more.
  EXPECT_LE(moc.plt, 0.5 * 5 / 97 + 1e-6);
  model.experts_per_checkpoint = 4;
  EXPECT_EQ(run(model, trace, "moc", 5).plt, 0);
}

}  // namespace
}  // namespace simtest
