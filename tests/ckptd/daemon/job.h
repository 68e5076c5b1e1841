// Job: a group of FakeTrainers that train together, and the checks that tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/ckptd/daemon/fake_trainer.h"

namespace ckptd::testing {

class Job {
 public:
  Job(World& with_world, uint32_t with_size, FakeTrainer::Options with_options = {})
      : world(with_world), size(with_size), options(std::move(with_options)) {}

  // Connects and registers every rank, and opens an epoch.
  void start(fb::ResumeMode resume = fb::ResumeMode::Start, ckpt::Step step = 0) {
    ranks.clear();
    for (ckpt::Rank rank = 0; rank < size; ++rank) add_rank();
    join(resume, step);
  }
  void add_rank() {
    ranks.push_back(std::make_unique<FakeTrainer>(world, options));
    ASSERT_TRUE(ranks.back()->connect()) << ranks.back()->error();
    ASSERT_TRUE(ranks.back()->register_units(registered())) << ranks.back()->error();
  }
  void join(fb::ResumeMode resume, ckpt::Step step = 0) {
    for (ckpt::Rank rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank]->join(rank, static_cast<uint32_t>(ranks.size()), resume, step);
    }
    world.run();
    for (auto& rank : ranks) ASSERT_TRUE(rank->started()) << rank->error();
  }
  // A new process replaces a lost rank. All ranks join the next epoch.
  void replace(ckpt::Rank rank) {
    ranks[rank] = std::make_unique<FakeTrainer>(world, options);
    ASSERT_TRUE(ranks[rank]->connect());
    ASSERT_TRUE(ranks[rank]->register_units(registered()));
  }

  // The units of the model that ranks register; the others are for a growth.
  std::vector<ckpt::UnitSpec> registered() const {
    return {model.begin(), model.begin() + static_cast<ptrdiff_t>(std::min(base, model.size()))};
  }

  ckpt::Plan plan(const std::vector<ckpt::UnitId>& which) const {
    return even_plan(model, which, static_cast<uint32_t>(ranks.size()));
  }
  std::vector<ckpt::UnitId> all_units() const {
    std::vector<ckpt::UnitId> which;
    for (ckpt::UnitId unit = 0; unit < model.size(); ++unit) which.push_back(unit);
    return which;
  }
  // All units, `memory_units` in memory only.
  ckpt::Plan plan_in_memory(const std::vector<ckpt::UnitId>& memory_units) const {
    ckpt::Plan all = plan(all_units());
    all.memory_units = memory_units;
    return all;
  }
  void begin(ckpt::Step step, uint64_t salt = 0) { begin(step, plan(all_units()), salt); }
  void begin(ckpt::Step step, const ckpt::Plan& snapshot_plan, uint64_t salt = 0,
             uint32_t attempt = 0) {
    for (auto& rank : ranks) rank->begin(step, snapshot_plan, salt, attempt);
    world.run();
  }
  void fill(ckpt::Step step) {
    for (auto& rank : ranks) ASSERT_TRUE(rank->fill(step)) << rank->error();
  }
  void listen() {
    for (auto& rank : ranks) rank->listen();
  }
  // Saves a snapshot of all units until it is durable.
  void commit(ckpt::Step step, uint64_t salt = 0) {
    save(step, plan(all_units()), fb::SnapshotLevel::Durable, salt);
  }
  // Saves a snapshot and expects `level` on all ranks once the daemon is idle.
  void save(ckpt::Step step, const ckpt::Plan& snapshot_plan, fb::SnapshotLevel level,
            uint64_t salt = 0) {
    begin(step, snapshot_plan, salt);
    fill(step);
    world.run();
    listen();
    for (auto& rank : ranks) {
      ASSERT_EQ(rank->snapshot(step).level, level) << rank->snapshot(step).reason << rank->error();
    }
  }

  fb::OpenRestoreT whole(ckpt::Step step) const {
    fb::OpenRestoreT request;
    request.run = options.run;
    request.step = step;
    for (ckpt::UnitId unit = 0; unit < model.size(); ++unit) {
      request.wants.emplace_back(unit, 0, 0, model[unit].bytes);
    }
    return request;
  }
  // Restores all units of exactly this view through a reader of its own.
  FakeTrainer::Restored restore_exact(ckpt::Step step) {
    FakeTrainer reader(world, {.run = options.run});
    EXPECT_TRUE(reader.connect()) << reader.error();
    fb::OpenRestoreT request = whole(step);
    request.exact = true;
    FakeTrainer::Restored restored = reader.restore(request);
    reader.die();
    world.run();
    return restored;
  }
  // Restores all units at the step through this rank and compares every byte.
  void expect_restores(FakeTrainer& trainer, ckpt::Step step, uint64_t salt = 0) {
    expect_bytes(trainer.restore(whole(step)), step, salt);
  }
  void expect_bytes(const FakeTrainer::Restored& restored, ckpt::Step step, uint64_t salt) {
    ASSERT_EQ(restored.error, "");
    for (ckpt::UnitId unit = 0; unit < model.size(); ++unit) {
      EXPECT_EQ(restored.steps[unit], step);
      for (uint64_t i = 0; i < model[unit].bytes; ++i) {
        ASSERT_EQ(restored.bytes[unit][i], state_byte(unit, step, salt, i))
            << model[unit].name << " byte " << i;
      }
    }
  }
  // Steps that the log lists, newest first.
  std::vector<ckpt::Step> log(FakeTrainer& trainer) {
    const auto reply = trainer.query("log", "{\"target\": \"" + options.run + "\"}");
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    std::vector<ckpt::Step> steps;
    for (const auto& one : nlohmann::json::parse(reply.json)) steps.push_back(one.at("step"));
    return steps;
  }

  World& world;
  const uint32_t size;
  const FakeTrainer::Options options;
  std::vector<ckpt::UnitSpec> model = small_model();
  size_t base = SIZE_MAX;  // units of the model to register
  std::vector<std::unique_ptr<FakeTrainer>> ranks;
};

}  // namespace ckptd::testing
