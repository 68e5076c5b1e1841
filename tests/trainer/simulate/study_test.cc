#include "trainer/simulate/study.h"

#include <algorithm>

#include "tests/trainer/simulate/cluster.h"

namespace simtest {
namespace {

TEST(Study, BestIntervalBeatsAllOthers) {
  CostModel model = plain_model();
  model.remote_write_bytes_per_s = model.checkpoint_bytes() / 4;
  model.restart_s = 12;
  const auto trace = make_trace({.nodes = 2,
                                 .between_failures = micros(200),
                                 .exponential = true,
                                 .repair = 0,
                                 .duration = 100'000 * kSecond,
                                 .seed = 9});
  ASSERT_TRUE(trace.ok());
  const LoadModel load = LoadModel::zipf(model);
  Planner planner(model, load);
  const Scenario scenario{model, *trace, load, planner};
  const auto best = best_options(scenario, system_of("ds"));
  ASSERT_TRUE(best.ok());
  // Young: 40 steps; the grid has 20 and 50.
  EXPECT_TRUE(best->options.checkpoint_steps == 20 || best->options.checkpoint_steps == 50);
  for (const uint64_t steps : {1, 2, 5, 10, 20, 50, 100, 200, 500}) {
    EXPECT_GE(best->outcome.samples, run(model, *trace, "ds", steps).samples);
  }
}

TEST(Study, ComparisonsHaveEveryPolicyInOrder) {
  const CostModel model = plain_model();
  const NodeTrace trace = trace_of(4, {{50.5, false, 0}}, 100);
  const LoadModel load = LoadModel::zipf(model);
  Planner planner(model, load);
  const auto chosen = parse_systems("ours,ds");
  ASSERT_TRUE(chosen.ok());
  const auto results = compare({model, trace, load, planner}, *chosen, false);
  ASSERT_TRUE(results.ok());
  ASSERT_EQ(results->size(), 2U);
  EXPECT_EQ((*results)[0].system->name, "ours");
  EXPECT_EQ((*results)[0].given.outcome, run(model, trace, "ours", 10));
  EXPECT_EQ((*results)[0].given.outcome, (*results)[0].best.outcome);
  EXPECT_FALSE(parse_systems("ours,").ok());
  EXPECT_FALSE(parse_systems("ours,ours").ok());
  EXPECT_FALSE(parse_systems("").ok());
  EXPECT_EQ(parse_systems("all")->size(), systems().size());
}

TEST(Study, SensitivityChangesOneParameterAtATime) {
  CostModel model = plain_model();
  model.restart_s = 20;
  const NodeTrace trace = trace_of(4, {{50.5, false, 0}, {50.5, true, 0}}, 200);
  const LoadModel load = LoadModel::zipf(model);
  Planner planner(model, load);
  const std::vector<const System*> ds{&system_of("ds")};
  const auto rows = sensitivity({model, trace, load, planner}, ds);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const double given = rows->front().goodput[0];
  EXPECT_EQ(rows->front().parameter, nullptr);
  EXPECT_EQ(given, run(model, trace, "ds", 10).goodput());
  size_t seen = 0;
  for (const Varied& row : *rows) {
    if (row.parameter == nullptr) continue;
    EXPECT_NE(row.value, model.*row.parameter->field);
    if (row.parameter->key == "restart_s") {
      ++seen;
      EXPECT_EQ(row.goodput[0] > given, row.value < 20);
    }
    if (row.parameter->key == "gemini_steps") {  // not ds's
      EXPECT_EQ(row.goodput[0], given);
    }
  }
  EXPECT_EQ(seen, 2U);
}

}  // namespace
}  // namespace simtest
