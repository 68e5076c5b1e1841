// Fixture of the tests of runs that grow: a job of two ranks, and its growth.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {

inline constexpr ckpt::UnitId kAdapter = 4;  // behind the model's units
inline constexpr ckpt::UnitId kRouter = 5;

// A unit of floats.
inline ckpt::UnitSpec floats(const std::string& name, uint64_t count) {
  ckpt::UnitSpec unit;
  unit.name = name;
  unit.bytes = 4 * count;
  unit.tensors = {{"w." + name, ckpt::DType::kF32, {count}, 0}};
  return unit;
}

class GrowthTest : public PruneTest {
 protected:
  explicit GrowthTest(const World::Options& options = {}) : PruneTest(options), job(world, 2) {
    job.start();
  }
  // The job's model gets the units; each begin tells them.
  static void grow(Job& of, const std::vector<ckpt::UnitSpec>& units) {
    const auto first = static_cast<ckpt::UnitId>(of.model.size());
    of.model.insert(of.model.end(), units.begin(), units.end());
    tell(of, units, first);
  }
  static void tell(Job& of, const std::vector<ckpt::UnitSpec>& units, ckpt::UnitId first) {
    for (auto& rank : of.ranks) {
      rank->grown = units;
      rank->first_grown = first;
    }
  }
  void grow_and_commit() {
    job.commit(5);
    grow(job, {floats("adapter", 30'000)});
    job.commit(10);
  }
  // A new job of the run, in the state of the first registration.
  std::unique_ptr<Job> resumed(fb::ResumeMode mode, ckpt::Step step = 0) {
    for (auto& rank : job.ranks) rank->die();
    world.run();
    auto next = std::make_unique<Job>(world, 2);
    next->start(mode, step);
    return next;
  }
  static std::vector<std::string> told(const fb::EpochStartedT& epoch) {
    std::vector<std::string> names;
    for (const auto& unit : epoch.grown)
      names.push_back(fmt::format("{} {}", unit->id, unit->name));
    return names;
  }
  std::vector<std::string> shown(const std::string& target) {
    const Json view = ask_root("show", R"({"target": ")" + target + R"("})");
    EXPECT_EQ(view.at("complete"), true) << view;
    std::vector<std::string> names;
    for (const Json& unit : view.at("units")) names.push_back(unit.at("unit"));
    return names;
  }
  std::vector<std::string> schema() {
    std::vector<std::string> names;
    const Json answer = ask_root("schema", R"({"target": "tiny"})");
    for (const Json& unit : answer.at("units")) {
      names.push_back(unit.at("unit").get<std::string>() + (unit.contains("grown") ? "+" : ""));
    }
    return names;
  }
  static ckpt::UnitSpec expert() {
    ckpt::UnitSpec unit = floats("layers.0.experts.3.weights", 50);
    unit.layer = 0;
    unit.expert = 3;
    return unit;
  }
  void abort_snapshot(ckpt::Step step) {
    fb::AbortSnapshotT abort;
    abort.epoch = job.ranks[0]->epoch().epoch;
    abort.step = step;
    job.ranks[0]->send(abort);
    world.run();
  }
  // The reason of a snapshot that must fail.
  std::string refused(Job& of, ckpt::Step step, const ckpt::Plan& plan) {
    of.begin(step, plan);
    of.listen();
    std::string why;
    for (auto& rank : of.ranks) why += rank->error() + rank->snapshot(step).reason + "\n";
    return why;
  }
  void expect_grown_views() {
    EXPECT_THAT(shown("tiny@5"), ::testing::Not(::testing::Contains("adapter")));
    EXPECT_THAT(shown("tiny@10"), ::testing::Contains("adapter"));
    FakeTrainer reader(world, {});
    ASSERT_TRUE(reader.connect());
    job.expect_restores(reader, 10);
    fb::OpenRestoreT early;
    early.run = "tiny";
    early.step = 5;
    early.wants = {fb::Range(kAdapter, 0, 0, 100)};
    EXPECT_THAT(reader.restore(early).error,
                ::testing::HasSubstr("unit adapter: no version in this view"));
    reader.die();
    world.run();
  }

  Job job;
};

}  // namespace ckptd::testing
