// Groups of ranks without a daemon, in threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/trainer/comm/comm_groups.h"
#include "tests/trainer/elastic/live_rank.h"

namespace moetrain {

inline constexpr uint32_t kLayers = 2;
inline constexpr uint32_t kExperts = 6;

// A share for each of up to six ranks.
inline TrainConfig six_sequences() {
  TrainConfig config = small_config(kExperts);
  config.micro_batches = 1;
  config.batch = 6;
  return config;
}

class LiveStateRanks : public testing::Test {
 protected:
  LiveStateRanks() {
    for (uint32_t i = 0; text_.size() < 4000; ++i) {
      text_.push_back(static_cast<uint8_t>("the expert routes a token "[i * i % 26]));
    }
  }
  virtual std::unique_ptr<Device> make_device() { return make_cpu_device(); }
  using Group = std::vector<std::unique_ptr<Rank>>;

  std::unique_ptr<Rank> make(uint32_t ranks, uint32_t rank, const PlacementOptions& choice) {
    return std::make_unique<Rank>(make_device(), config_, text_, ranks, rank, choice);
  }
  Group start(uint32_t ranks, const PlacementOptions& choice) {
    Group group;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      group.push_back(make(ranks, rank, choice));
      group.back()->model->initialise(config_.seed);
      group.back()->live.is_whole();
    }
    return group;
  }
  static std::vector<Status> all(Group& group, const std::function<Status(Rank&, Comm&)>& body) {
    auto comms = make_local_comms(static_cast<uint32_t>(group.size()));
    std::vector<Status> results(group.size());
    on_all_ranks(comms,
                 [&](Comm& comm) { results[comm.rank()] = body(*group[comm.rank()], comm); });
    return results;
  }
  static void train(Group& group, int steps) {
    for (int i = 0; i < steps; ++i) {
      for (const Status& status : all(group, [](Rank&r, Comm&c) { return r.step(c); })) {
        ASSERT_TRUE(status.ok()) << status.error().message;
      }
    }
  }
  static void change(Group& group) {
    for (const Status& status : all(group, [](Rank&r, Comm&c) { return r.change(c); })) {
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  }
  std::vector<float> undisturbed(int steps) {
    Group group = start(2, {});
    train(group, steps);
    return group[0]->losses;
  }

  const TrainConfig config_ = six_sequences();
  std::vector<uint8_t> text_;
  const PlacementOptions twice_{.policy = PolicyName::kLazarus, .slots = 4, .replicas_min = 2};
};

}  // namespace moetrain
