// Properties of any simulation.
#include <algorithm>

#include "tests/trainer/simulate/cluster.h"

namespace simtest {
namespace {

constexpr uint64_t kCases = 40;

TEST(Engine, TimeAddsUpAndCurvesRise) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case one = random_case(seed);
    for (const System& system : systems()) {
      const Outcome outcome = run(one.model, one.trace, system.name, one.checkpoint_steps);
      const std::string where = fmt::format("seed {} {}", seed, system.name);
      EXPECT_EQ(outcome.total(), one.trace.end) << where;
      for (const Micros time : outcome.time) EXPECT_GE(time, 0) << where;
      EXPECT_GE(outcome.plt, 0) << where;
      EXPECT_LE(outcome.plt, 1) << where;
      EXPECT_TRUE(std::ranges::is_sorted(outcome.curve, {}, &CurvePoint::at)) << where;
      EXPECT_TRUE(std::ranges::is_sorted(outcome.curve, {}, &CurvePoint::samples)) << where;
      ASSERT_FALSE(outcome.curve.empty());
      EXPECT_EQ(outcome.curve.back().samples, outcome.samples) << where;
      EXPECT_LE(outcome.rewinds, outcome.failures) << where;
    }
  }
}

TEST(Engine, IsDeterministic) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Case one = random_case(seed);
    for (const System& system : systems()) {
      EXPECT_EQ(run(one.model, one.trace, system.name, one.checkpoint_steps),
                run(one.model, one.trace, system.name, one.checkpoint_steps));
    }
  }
}

// Restarting systems with spares: fewer losses never give fewer samples.
TEST(Engine, FewerFailuresNeverCost) {
  CostModel model = plain_model();
  model.restart_s = 20;
  model.timeout_s = 5;
  std::vector<At> events;
  std::vector<double> samples(systems().size(), 1e18);
  for (uint32_t failures = 0; failures < 12; ++failures) {
    for (size_t i = 0; i < systems().size(); ++i) {
      const double now = run(model, trace_of(4, events, 1000), systems()[i].name, 7).samples;
      EXPECT_LE(now, samples[i]) << systems()[i].name << " " << failures;
      samples[i] = now;
    }
    // The node is back at once: only the failure itself costs.
    const double at = 60.5 + 70.0 * failures;
    events.push_back({at, false, failures % 4});
    events.push_back({at, true, failures % 4});
  }
}

// A node less for the rest of the time never helps a system that can use any number.
TEST(Engine, FewerNodesNeverHelp) {
  for (const char* system : {"lazarus", "ours"}) {
    double before = 1e18;
    for (uint32_t nodes = 12; nodes >= 2; --nodes) {
      const double now = run(plain_model(), trace_of(nodes, {}, 500), system, 10).samples;
      EXPECT_LT(now, before);
      before = now;
    }
    EXPECT_EQ(run(plain_model(), trace_of(1, {}, 500), system, 10).of(Kind::kIdle), 500 * kSecond);
  }
}

TEST(Engine, IsIdleUntilEnoughNodesExist) {
  CostModel model = plain_model();
  model.restart_s = 3;
  model.timeout_s = 100;  // no detection is needed: all ranks wait already
  const NodeTrace trace = trace_of(2, {{10.5, false, 0}, {40, true, 0}}, 100);
  const Outcome outcome = run(model, trace, "ds", 5);
  EXPECT_EQ(outcome.of(Kind::kIdle), micros(29.5));
  EXPECT_EQ(outcome.of(Kind::kRecover), 3 * kSecond);
  EXPECT_EQ(outcome.of(Kind::kTrain), 67 * kSecond);
}

// A second loss during a recovery restarts the recovery, unless the lost node was a spare.
TEST(Engine, LossDuringRecoveryRestartsRecovery) {
  CostModel model = plain_model();
  model.restart_s = 10;
  const NodeTrace trace = trace_of(6, {{20, false, 0}, {23, false, 1}, {26, false, 2}}, 100);
  const Outcome outcome = run(model, trace, "ds", 5);
  EXPECT_EQ(outcome.of(Kind::kRecover), 16 * kSecond);
  EXPECT_EQ(outcome.failures, 1U);
}

// Joiners wait for each other, are admitted at the next step boundary, and train.
TEST(Engine, JoinersAreAdmittedAndTrain) {
  CostModel model = plain_model();
  model.join_wait_s = 5;
  model.regroup_s = 2;
  model.restart_s = 7;
  const NodeTrace trace = trace_of(2, {{10.5, true, 2}, {12, true, 3}}, 100);
  const Outcome lazarus = run(model, trace, "lazarus", 50);
  EXPECT_EQ(lazarus.of(Kind::kRecover), 2 * kSecond);
  EXPECT_EQ(lazarus.samples, 16 * 2 + 82 * 4);
  const Outcome ds = run(model, trace, "ds", 50);
  EXPECT_EQ(ds.of(Kind::kRecover), 7 * kSecond);
  EXPECT_EQ(ds.of(Kind::kRedo), 0);
  EXPECT_EQ(ds.samples, 16 * 2 + 77 * 4);
}

// gemini keeps snapshots at a peer: one loss costs the steps since the snapshot, the loss of two
// neighbours all steps since the last checkpoint in the shared store.
TEST(Engine, PeerServesStateOfLostNode) {
  CostModel model = plain_model();
  model.remote_write_bytes_per_s = model.checkpoint_bytes() / 1e6;  // never there in time
  const Outcome one = run(model, trace_of(6, {{50.5, false, 2}}, 100), "gemini", 1);
  EXPECT_EQ(one.of(Kind::kRedo), micros(0.5));
  const Outcome two =
      run(model, trace_of(6, {{50.5, false, 2}, {50.5, false, 3}}, 100), "gemini", 1);
  EXPECT_EQ(two.of(Kind::kRedo), micros(50.5));
}

// Snapshots that take longer than their interval are skipped, not queued.
TEST(Engine, SlowSnapshotsAreSkipped) {
  CostModel model = plain_model();
  model.peer_bytes_per_s = model.checkpoint_bytes() / 4 / 2.5;  // 2.5 s each
  const Outcome outcome = run(model, trace_of(4, {}, 90.5), "gemini", 1);
  EXPECT_EQ(outcome.checkpoints, 30U);
  EXPECT_EQ(outcome.skipped, 60U);
  EXPECT_EQ(outcome.ettr(), 1);
}

TEST(Engine, RefusesTooManySteps) {
  CostModel model = plain_model();
  model.dense_us_per_token = 0;
  const LoadModel load = LoadModel::zipf(model);
  Planner planner(model, load);
  const NodeTrace trace = trace_of(2, {}, 8'000'000);
  const auto outcome = simulate({model, trace, load, planner}, system_of("ds"), {});
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.error().message.find("too many"), std::string::npos);
}

}  // namespace
}  // namespace simtest
