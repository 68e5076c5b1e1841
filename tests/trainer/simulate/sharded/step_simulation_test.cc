#include "trainer/simulate/sharded/step_simulation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/simulate/sharded/sharded_cluster.h"

namespace moetrain::simulate::sharded {
namespace {

using simtest::hand_model;
using simtest::sharded_system;
using simtest::skewed_model;
using simtest::step_of;

// On both nodes one rank computes 120 tokens, the other 60. Seconds of a layer: dense 0.09, experts
// 0.12 (mean 0.09), an all-to-all 0.01, a restore 0.1, a re-shard 0.1. Four forward passes of
// compute and six all-to-alls in each of two layers; the first layer's restore and re-shard are
// exposed.
TEST(ShardedStep, FullyShardedMatchesHandComputation) {
  const ShardedOutcome fsdp = step_of(hand_model(), sharded_system("fsdp-ep"));
  EXPECT_NEAR(fsdp.step.dense, 2 * 4 * 0.09 + 3 * 0.009, 1e-9);
  EXPECT_NEAR(fsdp.step.experts, 2 * 4 * 0.09, 1e-9);
  EXPECT_NEAR(fsdp.step.waiting, 2 * 4 * 0.03, 1e-9);
  EXPECT_NEAR(fsdp.step.all_to_all, 2 * 6 * 0.01, 1e-9);
  EXPECT_NEAR(fsdp.step.exposed, 0.2, 1e-9);
  EXPECT_NEAR(fsdp.step.other, 0.101, 1e-9);
  EXPECT_NEAR(fsdp.step.total(), 2.128, 1e-9);
  EXPECT_NEAR(fsdp.max_over_mean, 4.0 / 3, 1e-9);
  EXPECT_NEAR(fsdp.exchange_s, 2 * 3 * 0.1, 1e-9);
  EXPECT_NEAR(fsdp.restore_bytes, 2 * 2 * 1080, 1e-6);
  EXPECT_NEAR(fsdp.reshard_bytes, 2 * 1080, 1e-6);
}

// Each node's two ranks share a sequence: 60 and 30 tokens, two micro-batches. Three forward passes
// of compute, four all-to-alls of 30 tokens (5 ms), five exchanges of 45 tokens (7.5 ms); compute
// hides the reduction of gradients.
TEST(ShardedStep, MegatronMatchesHandComputation) {
  const ShardedOutcome megatron = step_of(hand_model(), sharded_system("megatron"));
  EXPECT_NEAR(megatron.step.dense, 2 * 2 * 3 * 0.045 + 2 * 3 * 0.0045, 1e-9);
  EXPECT_NEAR(megatron.step.experts, 2 * 2 * 3 * 0.045, 1e-9);
  EXPECT_NEAR(megatron.step.waiting, 2 * 2 * 3 * 0.015, 1e-9);
  EXPECT_NEAR(megatron.step.all_to_all, 2 * 2 * 4 * 0.005, 1e-9);
  EXPECT_NEAR(megatron.step.exposed, 2 * 2 * 5 * 0.0075, 1e-9);
  EXPECT_NEAR(megatron.step.other, 0.1, 1e-9);
  EXPECT_NEAR(megatron.max_over_mean, 4.0 / 3, 1e-9);
}

TEST(ShardedStep, MegatronExposesUnhiddenExchange) {
  ShardedModel model = hand_model();
  model.between_bytes_per_s = 1440;
  // 575 parameters for others on a tenth of the link: 3.19 s of gradients, 1.6 s of weights; a
  // forward pass takes 0.18 s.
  const ShardedOutcome megatron = step_of(model, sharded_system("megatron"));
  EXPECT_NEAR(megatron.step.exposed - 2 * 2 * 5 * 0.0075, 2300.0 / 720 - 0.36 + 1150.0 / 720 - 0.18,
              1e-9);
}

TEST(ShardedStep, EvenRoutingMakesFsdpAndLaerEqual) {
  ShardedModel model = skewed_model();
  model.sequence_noise = 0;
  model.shapes[0].zipf = 0;
  const ShardedOutcome fsdp = step_of(model, sharded_system("fsdp-ep"));
  const ShardedOutcome laer = step_of(model, sharded_system("laer"));
  EXPECT_NEAR(fsdp.max_over_mean, 1, 1e-9);
  EXPECT_NEAR(laer.max_over_mean, 1, 1e-9);
  EXPECT_NEAR(laer.step.total(), fsdp.step.total(), 1e-9);
  EXPECT_NEAR(laer.restore_bytes, fsdp.restore_bytes, 1e-6);
}

TEST(ShardedStep, LaerWithStaticPlanEqualsFsdp) {
  const ShardedModel model = skewed_model();
  ShardedSystem laer = sharded_system("laer");
  laer.plan = PolicyName::kStatic;
  EXPECT_DOUBLE_EQ(step_of(model, laer).step.total(),
                   step_of(model, sharded_system("fsdp-ep")).step.total());
}

TEST(ShardedStep, SkewedLoadsAreBalanced) {
  const ShardedModel model = skewed_model();
  const ShardedOutcome fsdp = step_of(model, sharded_system("fsdp-ep"));
  for (const char* planner : {"laer", "eplb"}) {
    const ShardedOutcome planned = step_of(model, sharded_system(planner));
    EXPECT_LT(planned.max_over_mean, fsdp.max_over_mean - 0.1) << planner;
    EXPECT_LT(planned.step.waiting, fsdp.step.waiting) << planner;
    EXPECT_LE(planned.restore_bytes, fsdp.restore_bytes + 1e-6) << planner;
  }
}

TEST(ShardedStep, FasterHardwareIsNeverSlower) {
  for (const char* name : {"laer", "fsdp-ep", "megatron"}) {
    for (double ShardedModel::*rate :
         {&ShardedModel::within_bytes_per_s, &ShardedModel::between_bytes_per_s,
          &ShardedModel::expert_flops_per_s, &ShardedModel::dense_flops_per_s,
          &ShardedModel::memory_bytes_per_s}) {
      ShardedModel model = skewed_model();
      // The planner is to do the same for all rates of links.
      ShardedSystem system = sharded_system(name);
      system.candidates = LaerCandidates::kByLoad;
      double before = HUGE_VAL;
      const double given = model.*rate;
      for (const double factor : {0.25, 1.0, 4.0, 16.0}) {
        model.*rate = given * factor;
        const double step = step_of(model, system).step.total();
        EXPECT_LE(step, before + 1e-9) << name << " " << factor;
        before = step;
      }
    }
  }
}

TEST(ShardedStep, EarlierPrefetchIsNeverSlower) {
  ShardedModel model = skewed_model();
  model.between_bytes_per_s = 4e3;  // restores that compute cannot hide
  double before = HUGE_VAL;
  for (const bool delayed : {false, true}) {
    for (const uint32_t prefetch : {0U, 1U, 2U}) {
      ShardedSystem laer = sharded_system("laer");
      laer.schedule = {.prefetch = prefetch, .delayed_reshard = delayed};
      const double exposed = step_of(model, laer).step.exposed;
      if (prefetch > 0) {
        EXPECT_LT(exposed, before) << prefetch;
      }
      before = exposed;
    }
  }
}

// A new plan moves nothing: bytes depend on the distinct (rank, expert) pairs alone.
TEST(ShardedStep, BytesDoNotDependOnTheLoads) {
  ShardedModel model = skewed_model();
  const Shape& shape = model.shapes[0];
  const double given = step_of(model, sharded_system("fsdp-ep")).restore_bytes;
  const double batches = model.sequences / model.ranks() / model.sequences_per_rank;
  EXPECT_NEAR(given, 2 * batches * shape.layers * restore_bytes(model, shape, shape.slots), 1e-6);
  model.sequence_noise = 0;
  EXPECT_NEAR(step_of(model, sharded_system("fsdp-ep")).restore_bytes, given, 1e-6);
}

}  // namespace
}  // namespace moetrain::simulate::sharded
