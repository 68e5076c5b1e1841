#include "tests/trainer/parallel/sharded_run.h"

#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <random>

#include "tests/trainer/model/ranks.h"

namespace moetrain {

ShardedResult train_sharded(const ShardedRun& run) {
  const std::vector<uint8_t> text = sample_text(4000);
  const bool threaded = run.threaded && run.schedule.overlaps();
  auto comms = threaded ? make_comms_with_threads(run.kind, run.ranks, 60'000)
                        : make_comms(run.kind, run.ranks, 60'000);
  ShardedResult result;
  result.traffic.resize(run.ranks);
  result.memory_bytes.resize(run.ranks);
  result.memory_bound.resize(run.ranks);
  std::mutex mutex;
  on_all_ranks(comms, [&](Comm& comm) {
    const ComputePlacement first = run.placement(0);
    const auto made =
        RankTraining::make(cpu_device(), comm, run.config, text, &first, run.state, run.schedule);
    ASSERT_TRUE(made.ok()) << made.error().message;
    RankTraining& training = **made;
    ExpertStore& store = training.model().experts();
    std::vector<StepTraffic> traffic;
    for (uint64_t step = 0; step < run.steps; ++step) {
      if (run.state == ExpertState::kSharded) {
        ASSERT_TRUE(store.set_placement(run.placement(step)).ok());
      }
      const Status done = training.steps(1);
      ASSERT_TRUE(done.ok()) << done.error().message;
      traffic.push_back(training.model().traffic());
    }
    const State state = *training.state();
    const std::lock_guard lock(mutex);
    std::vector<uint32_t> loss_bits;
    for (const float loss : training.losses()) loss_bits.push_back(std::bit_cast<uint32_t>(loss));
    if (result.loss_bits.empty()) {
      result.loss_bits = loss_bits;
      result.norms = training.norms();
      result.traffic_of_all = training.traffic();
    }
    EXPECT_EQ(loss_bits, result.loss_bits) << "rank " << comm.rank();
    EXPECT_EQ(training.norms(), result.norms) << "rank " << comm.rank();
    EXPECT_EQ(training.traffic(), result.traffic_of_all) << "rank " << comm.rank();
    EXPECT_EQ(merge(result.state, state), 0u) << "rank " << comm.rank();
    result.traffic[comm.rank()] = std::move(traffic);
    result.memory_bytes[comm.rank()] = store.memory_bytes();
    result.memory_bound[comm.rank()] = store.memory_bound();
  });
  return result;
}

ComputePlacement random_placement(const ModelConfig& shape, uint32_t ranks, uint32_t slots,
                                  uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<LayerSlots> layers;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    LayerSlots& of_ranks = layers.emplace_back(ranks);
    for (uint32_t expert = 0; expert < shape.experts; ++expert) {
      uint64_t rank = random() % ranks;
      while (of_ranks[rank].size() == slots) rank = (rank + 1) % ranks;
      of_ranks[rank].push_back(expert);
    }
    for (uint64_t more = random() % (uint64_t{ranks} * slots); more > 0; --more) {
      std::vector<uint32_t>& of_rank = of_ranks[random() % ranks];
      if (of_rank.size() < slots) {
        of_rank.push_back(static_cast<uint32_t>(random() % shape.experts));
      }
    }
  }
  auto placement = make_placement(std::move(layers), shape.experts, ranks);
  CKPT_ASSERT_MSG(placement.ok(), placement.error().message);
  return std::move(placement).value();
}

TrainConfig odd_config() {
  TrainConfig config = small_config(5);
  config.model.hidden = 10;
  config.model.intermediate = 7;
  return config;
}

}  // namespace moetrain
