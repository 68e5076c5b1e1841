// A run of one rank with its own ckptd: steps that change every number, snapshots, and the last
// saved state of each unit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/support/daemon_process.h"
#include "trainer/checkpoint/expert_restore.h"
#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/registration.h"
#include "trainer/checkpoint/restore.h"
#include "trainer/checkpoint/snapshotter.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/parallel/make_expert_store.h"

namespace moetrain {

namespace client = ckpt::client;
using Image = std::map<uint32_t, std::vector<std::byte>>;  // unit -> its bytes

inline ModelConfig small_shape(uint32_t hidden = 16) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = hidden;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.intermediate = 24;
  config.experts = 4;
  return config;
}
inline constexpr ExpertGrid kGrid{2, 4};

class DaemonRunTest : public testing::Test {
 protected:
  explicit DaemonRunTest(const PartialOptions& options = {.k = 1,
                                                          .selector = Selector::kSequential,
                                                          .plt_budget = 1})
      : partial_(units_, placement_, options) {}
  void SetUp() override {
    auto store = make_expert_store(*device_, small_shape(), placement_,
                                   Ownership::replicated(placement_), 0);
    model_ = std::move(Model::create(*device_, small_shape(), std::move(store).value())).value();
    model_->initialise(1);
    trainer_unit_.resize(units_[kTrainerUnit].bytes);
    memory_.emplace(units_, *model_, trainer_unit_, stamps_);
    connect();
  }
  // A session of its only rank, in a new epoch.
  void connect() {
    snapshotter_.reset();
    session_.reset();
    auto opened = client::Session::open({.socket = daemon_.socket(),
                                         .run = "tiny",
                                         .arena_bytes = 8 << 20,
                                         .slab_bytes = 256 << 10,
                                         .alarms = CKPT_ALARMS_OFF});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    session_.emplace(std::move(opened).value());
    const auto registered = session_->register_units(registration(units_), "{}");
    ASSERT_TRUE(registered.ok()) << registered.error().message;
    auto joined = session_->join({.rank = 0, .size = 1});
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    lineage_ = joined->lineage;
    resume_ = joined->resume;
    snapshotter_.emplace(*session_, 0);
  }

  // A step that changes every number and gives each expert some tokens.
  void step() {
    ++step_;
    for (const ParameterPart& part : model_->parts()) {
      for (Tensor WeightState::*const tensor :
           {&WeightState::value, &WeightState::m, &WeightState::v}) {
        std::vector<float> numbers = *part.read(tensor);
        for (float& number : numbers) number = number * 0.5f + 1;
        part.write(tensor, numbers);
      }
    }
    for (size_t i = 0; i < kGrid.size(); ++i) {
      const auto tokens = static_cast<int64_t>(random_() % 40);
      routed_[i] += tokens;
      held_[i] += tokens;
      ++updates_[i];
    }
  }
  void save(std::vector<uint32_t> units, std::vector<ckpt_fragment> fragments,
            std::vector<uint32_t> memory_units = {}) {
    write_trainer_unit();
    const Status begun = snapshotter_->begin({.step = step_,
                                              .units = units,
                                              .memory_units = memory_units,
                                              .fragments = std::move(fragments)},
                                             {});
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    const Status filled = snapshotter_->fill(*memory_);
    ASSERT_TRUE(filled.ok()) << filled.error().message;
    const auto durable = snapshotter_->wait(step_, 60'000);
    ASSERT_TRUE(durable.ok()) << durable.error().message;
    const Image now = image();
    for (const uint32_t unit : units) saved_[unit] = {step_, now.at(unit)};
  }
  // Includes the stamps of all experts: a restore of single experts reads them.
  void write_trainer_unit() {
    const std::vector<int64_t> counts(kGrid.size());
    TrainerState state{.config = "{}", .placement = placement_, .stamps = stamps_.list()};
    state.progress.step = state.progress.applied = step_;
    state.progress.routed_tokens = state.progress.routed_last = counts;
    state.partial.lost = {counts, counts};
    const auto bytes = encode(state);
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    std::ranges::copy(*bytes, trainer_unit_.begin());
  }
  void save(bool full = false) {
    auto plan = partial_.next(step_, {routed_, updates_}, full, stamps_);
    for (const uint32_t expert : plan.experts) held_disk_[expert] = held_[expert];
    for (const auto* experts : {&plan.experts, &plan.memory_experts}) {
      for (const uint32_t expert : *experts) held_saved_[expert] = held_[expert];
    }
    save(plan.units, plan.fragments, plan.memory_units);
    views_[step_] = {partial_.state(), routed_};
  }
  void save_all_but(const std::string& name) {
    std::vector<uint32_t> units;
    for (uint32_t id = 0; id < units_.size(); ++id) {
      if (units_[id].name != name) units.push_back(id);
    }
    save(units,
         snapshot_plan(units_, units, Ownership::replicated(placement_), DenseSharding::kBytes));
  }
  void forge_stamps(ExpertStamp stamp) {
    for (size_t i = 0; i < kGrid.size(); ++i) {
      stamp.step = static_cast<int64_t>(step_);
      stamps_.at(ExpertPart::kWeights, i) = stamps_.at(ExpertPart::kOptimizer, i) = stamp;
    }
  }

  Image image() const {
    Image image;
    for (uint32_t id = 0; id < units_.size(); ++id) {
      for (const MemoryPiece& piece : memory_->pieces(id, 0, units_[id].bytes)) {
        image[id].insert(image[id].end(), piece.bytes.begin(), piece.bytes.end());
      }
    }
    return image;
  }
  Result<ExpertVersions> read(const std::vector<uint32_t>& experts, uint64_t step) {
    return ExpertVersions::read(*session_, "tiny", {lineage_, step}, units_, kGrid, experts);
  }

  ckpt::test::DaemonProcess daemon_;
  const std::vector<StateUnit> units_ = state_units(small_shape());
  const ComputePlacement placement_ = *static_placement(2, 4, 1);
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::unique_ptr<Model> model_;
  std::vector<std::byte> trainer_unit_;
  ExpertStamps stamps_{kGrid};
  std::optional<StateMemory> memory_;
  PartialCheckpoint partial_;
  std::optional<client::Session> session_;
  std::optional<Snapshotter> snapshotter_;
  uint32_t lineage_ = 0;
  std::optional<client::ViewPoint> resume_;  // of the epoch

  std::mt19937 random_{7};
  uint64_t step_ = 0;
  std::vector<int64_t> routed_ = std::vector<int64_t>(kGrid.size());
  std::vector<int64_t> held_ = routed_, updates_ = routed_;
  std::vector<int64_t> held_saved_ = routed_, held_disk_ = routed_;  // by the newest versions
  struct View {
    PartialState partial;
    std::vector<int64_t> routed;
  };
  std::map<uint64_t, View> views_;  // by step
  struct Saved {
    uint64_t step = 0;
    std::vector<std::byte> bytes;
  };
  std::map<uint32_t, Saved> saved_;  // the newest version of each unit
};

}  // namespace moetrain
