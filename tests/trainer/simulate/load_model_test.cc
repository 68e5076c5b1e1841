#include "trainer/simulate/load_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/trainer/simulate/cluster.h"
#include "trainer/simulate/random.h"

namespace moetrain::simulate {
namespace {

using testing::HasSubstr;

CostModel skewed() {
  CostModel model = simtest::plain_model();
  model.zipf = 1;
  model.drift = 1;
  model.drift_steps = 10;
  return model;
}

std::string error_of_recording(std::string_view csv) {
  const auto load = LoadModel::from_trace(simtest::plain_model(), csv, "r.csv");
  return load.ok() ? "" : load.error().message;
}

TEST(LoadModel, ZipfHasItsSharesAndConservesTokens) {
  const LoadModel load = LoadModel::zipf(skewed());
  const double harmonic = 1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4;
  for (uint32_t epoch = 0; epoch < 50; ++epoch) {
    for (std::vector<uint64_t> layer : load.loads(epoch)) {
      EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), uint64_t{0}), kLoadUnits);
      std::ranges::sort(layer, std::greater<>());
      for (size_t k = 0; k < 4; ++k) {
        const double share = 1.0 / static_cast<double>(k + 1) / harmonic;
        EXPECT_NEAR(static_cast<double>(layer[k]) / kLoadUnits, share, 1e-5);
      }
    }
  }
}

TEST(LoadModel, DriftIsDeterministic) {
  const LoadModel load = LoadModel::zipf(skewed());
  const LoadModel again = LoadModel::zipf(skewed());
  const auto far = again.loads(30);  // asked for in another order
  EXPECT_EQ(load.loads(0), again.loads(0));
  EXPECT_EQ(load.loads(30), far);
  EXPECT_NE(load.loads(0), far);
  EXPECT_EQ(load.epoch_of(9), 0U);
  EXPECT_EQ(load.epoch_of(10), 1U);
  EXPECT_EQ(load.epoch_end(0), 10U);
  EXPECT_EQ(load.epoch_end(10), 20U);
}

TEST(LoadModel, ReadsATrace) {
  const auto load = LoadModel::from_trace(simtest::plain_model(),
                                          "iteration,layer,e0,e1,e2,e3\n"
                                          "1,0,1,1,1,1\n20,0,0,0,0,5\n60,0,1,0,0,1\n",
                                          "r.csv");
  ASSERT_TRUE(load.ok()) << load.error().message;
  const std::vector<uint64_t> even(4, kLoadUnits / 4);
  EXPECT_EQ(load->loads(0), (std::vector<std::vector<uint64_t>>{even, even}));
  EXPECT_EQ(load->loads(1)[1], (std::vector<uint64_t>{0, 0, 0, kLoadUnits}));
  EXPECT_EQ(load->epoch_of(0), 0U);
  EXPECT_EQ(load->epoch_of(19), 0U);
  EXPECT_EQ(load->epoch_of(20), 1U);
  EXPECT_EQ(load->epoch_of(1'000'000), 2U);
  EXPECT_EQ(load->epoch_end(20), 60U);
  EXPECT_EQ(load->epoch_end(60), UINT64_MAX);
}

TEST(LoadModel, RefusesATraceOfAnotherModel) {
  EXPECT_THAT(error_of_recording("iteration,layer,e0\n1,0,5\n"),
              HasSubstr("r.csv: 1 experts, the model has 4"));
  EXPECT_THAT(error_of_recording("iteration,layer,e0,e1,e2,e3\n1,0,1,1,1\n"),
              HasSubstr("r.csv line 2: e3 is missing"));
}

TEST(LoadModel, HostileBytes) {
  Random random(5);
  const CostModel model = simtest::plain_model();
  for (int round = 0; round < 20'000; ++round) {
    std::string csv = "iteration,layer,e0,e1,e2,e3\n1,0,1,2,3,4\n1,1,5,6,7,8\n9,0,1,1,1,1\n";
    for (uint64_t i = 1 + random.below(3); i > 0; --i) {
      csv[random.below(csv.size())] = "0123456789,\n\r-+e \xff"[random.below(18)];
    }
    const auto load = LoadModel::from_trace(model, csv, "r.csv");
    if (!load.ok()) {
      EXPECT_LT(load.error().message.size(), 300U);
      continue;
    }
    for (const auto& layer : load->loads(0)) {
      EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), uint64_t{0}), kLoadUnits);
    }
  }
}

TEST(LoadModel, ImbalanceIsLargestOverMean) {
  Plan plan{.nodes = 2,
            .ranks = 2,
            .slots = 2,
            .epoch = 0,
            .layers = {{{0, 1}, {1, 2}}},
            .holders = {},
            .held = {}};
  // Expert 1 has two replicas: ranks carry 30 + 20 and 20 + 30.
  EXPECT_DOUBLE_EQ(imbalance(plan, {{30, 40, 30}})[0], 1.0);
  EXPECT_DOUBLE_EQ(imbalance(plan, {{60, 40, 0}})[0], 80.0 / 50);
}

}  // namespace
}  // namespace moetrain::simulate
