#include "tests/trainer/simulate/cluster.h"

#include <cmath>

#include "trainer/simulate/random.h"

namespace simtest {

CostModel plain_model() {
  CostModel model{};
  model.layers = 2;
  model.experts = 4;
  model.top_k = 1;
  model.hidden = 8;
  model.dense_parameters = 100;
  model.expert_parameters = 10;
  model.tokens_per_sample = 1000;
  model.samples_per_rank = 1;
  model.slots_per_rank = 3;
  model.static_slots = 2;
  model.replicas_min = 2;
  model.bytes_per_parameter = 10;
  model.dense_us_per_token = 1000;
  model.all_to_all_bytes_per_s = 1e18;
  model.all_to_all_overlap = 1;
  model.all_reduce_bytes_per_s = 1e18;
  model.all_reduce_overlap = 1;
  model.transfer_bytes_per_s = 1e18;
  model.copy_bytes_per_s = 1e18;
  model.copy_hidden = 0;
  model.peer_bytes_per_s = 1e18;
  model.remote_write_bytes_per_s = 1e18;
  model.remote_read_bytes_per_s = 1e18;
  model.ds_steps = model.ds_ft_steps = model.gemini_steps = model.moc_steps = 10;
  model.lazarus_steps = model.ours_steps = 10;
  model.replan_steps = 1'000'000;
  model.experts_per_checkpoint = 4;
  model.drift_steps = 1'000'000;
  return model;
}

NodeTrace trace_of(uint32_t count, const std::vector<At>& events, double end_s) {
  NodeTrace trace;
  for (uint32_t node = 0; node < count; ++node) {
    trace.names.push_back(fmt::format("n{}", node));
    trace.events.push_back({0, node, true});
  }
  for (const At& event : events) {
    while (trace.names.size() <= event.node) {
      trace.names.push_back(fmt::format("n{}", trace.names.size()));
    }
    trace.events.push_back({micros(event.seconds), event.node, event.add});
  }
  trace.end = micros(end_s);
  return trace;
}

const System& system_of(std::string_view name) {
  const auto found = find_system(name);
  EXPECT_TRUE(found.ok()) << name;
  return **found;
}

Outcome run(const CostModel& model, const NodeTrace& trace, std::string_view system,
            uint64_t checkpoint_steps) {
  const LoadModel load = LoadModel::zipf(model);
  Planner planner(model, load);
  auto outcome = simulate({model, trace, load, planner}, system_of(system),
                          {.checkpoint_steps = checkpoint_steps});
  EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return outcome.ok() ? std::move(*outcome) : Outcome{};
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case one{.model = plain_model(), .trace = {}, .checkpoint_steps = 1 + random.below(20)};
  CostModel& model = one.model;
  const auto some = [&](double most) { return std::floor(random.unit() * most * 1000) / 1000; };
  model.layers = static_cast<double>(1 + random.below(3));
  model.dense_us_per_token = 200 + some(2000);
  model.expert_us_per_token = some(1000);
  model.zipf = some(2);
  model.drift = some(2);
  model.drift_steps = static_cast<double>(20 + random.below(80));
  model.replan_steps = static_cast<double>(20 + random.below(80));
  model.copy_bytes_per_s = 50 + some(2000);
  model.copy_hidden = some(1);
  model.peer_bytes_per_s = 50 + some(1000);
  model.transfer_bytes_per_s = 50 + some(1000);
  model.remote_write_bytes_per_s = 100 + some(3000);
  model.remote_read_bytes_per_s = 100 + some(3000);
  model.every_rank_reads = static_cast<double>(random.below(2));
  model.timeout_s = some(10);
  model.restart_s = some(30);
  model.regroup_s = some(10);
  model.plan_s = some(1);
  model.ours_detect_s = some(1);
  model.ours_regroup_s = some(3);
  model.join_wait_s = some(20);
  model.experts_per_checkpoint = static_cast<double>(1 + random.below(4));
  const SyntheticTrace options{.nodes = static_cast<uint32_t>(2 + random.below(9)),
                               .between_failures = micros(10 + some(100)),
                               .exponential = random.below(2) == 0,
                               .repair = random.below(3) == 0 ? -1 : micros(some(300)),
                               .duration = micros(100 + some(600)),
                               .seed = seed};
  auto trace = make_trace(options);
  EXPECT_TRUE(trace.ok());
  one.trace = std::move(*trace);
  return one;
}

}  // namespace simtest
