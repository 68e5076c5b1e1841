// Random histories of partial snapshots and lineages, pruned by random rules, through the daemon
// and back from its disk. Kept views and views held by a reader restore bit for bit, and a rebuilt
// catalog gives the same answers.
#include "tests/ckptd/catalog/history.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

// The bytes of each version encode its unit, its step and, as their salt, its lineage.
class Pruned : public PruneTest {
 protected:
  // With deltas little of a unit changes at each step.
  explicit Pruned(bool deltas = false)
      : PruneTest({.segment_bytes = 256u << 10,
                   .codec = deltas ? CodecChoice::kDelta : CodecChoice::kNone}),
        job_(world, 1),
        deltas_(deltas) {
    job_.model.clear();
    for (const uint64_t bytes : {9'000, 33, 4'096, 70'000, 1}) {
      ckpt::UnitSpec unit;
      unit.name = fmt::format("unit.{}", job_.model.size());
      unit.bytes = bytes;
      job_.model.push_back(unit);
    }
    model_.units = job_.model;
  }

  uint64_t draw(uint64_t bound) { return random_() % bound; }
  std::byte byte_of(ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t at) const {
    const bool stays = deltas_ && at % 61 != 0;
    return stays ? state_byte(unit, 0, 0, at) : state_byte(unit, step, salt, at);
  }
  ckpt::LineageId lineage() { return job_.ranks[0]->epoch().lineage; }

  void start(fb::ResumeMode resume, ckpt::Step step = 0) {
    if (!job_.ranks.empty()) job_.ranks[0]->die();
    job_.start(resume, step);
    job_.ranks[0]->byte_at = [this](auto unit, auto of, auto salt, auto at) {
      return byte_of(unit, of, salt, at);
    };
    const fb::EpochStartedT& epoch = job_.ranks[0]->epoch();
    model_.lineages[epoch.lineage] = {epoch.lineage, epoch.resume_lineage, epoch.resume_step};
    step_ = epoch.resume_step;
  }
  void commit(bool full) {
    step_ += 1 + draw(3);
    std::vector<ckpt::UnitId> units;
    for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
      if (full || draw(3) == 0) units.push_back(unit);
    }
    if (units.empty()) units.push_back(static_cast<ckpt::UnitId>(draw(job_.model.size())));
    FakeTrainer& rank = *job_.ranks[0];
    rank.begin(step_, job_.plan(units), /*salt=*/lineage());
    world.run();
    ASSERT_TRUE(rank.fill(step_)) << rank.error();
    world.run();
    rank.listen();
    ASSERT_EQ(rank.snapshot(step_).level, fb::SnapshotLevel::Durable) << rank.error();
    model_.commits.push_back({{lineage(), step_}, {units.begin(), units.end()}, full});
    listed_.insert({lineage(), step_});
  }
  // Resumes from a complete commit that the current lineage sees.
  void resume_somewhere() {
    std::vector<ckpt::Step> steps;
    for (const ViewPoint& point : listed_) {
      const auto seen = model_.distance(point, {lineage(), ~ckpt::Step{0}});
      if (seen && model_.complete(point)) steps.push_back(point.step);
    }
    if (steps.empty()) return;
    start(fb::ResumeMode::AtStep, steps[draw(steps.size())]);
  }
  std::string rules() {
    Json rules = Json::object();
    if (draw(2) == 0) rules["last"] = 1 + draw(3);
    if (draw(3) == 0) rules["every_steps"] = 1 + draw(8);
    if (draw(3) == 0) {
      rules["best"] = {{{"metric", "loss"}, {"count", 1 + draw(3)}, {"highest", draw(2) == 0}}};
    }
    const bool tagged =
        ask(job_, "log", R"({"target": "tiny"})").dump().find(R"("good")") != std::string::npos;
    if (draw(3) == 0 && tagged) rules["tags"] = {"good"};
    if (rules.empty()) rules["hourly"] = 1;
    return Json{{"target", "tiny"}, {"rules", rules}}.dump();
  }
  void tag_or_pin() {
    if (listed_.empty()) return;
    auto at = listed_.begin();
    std::advance(at, draw(listed_.size()));
    const std::string target = fmt::format("tiny~{}@{}", at->lineage, at->step);
    const bool pins = draw(2) == 0;
    ask(job_, pins ? "pin" : "tag",
        pins ? Json{{"target", target}}.dump() : Json{{"target", target}, {"tag", "good"}}.dump());
  }
  ViewPoint some_listed() {
    auto at = listed_.begin();
    std::advance(at, draw(listed_.size()));
    return *at;
  }
  // A reader takes a hold on a view, and keeps it until the daemon restarts.
  void hold_some() {
    if (listed_.empty() || held_.size() >= limits::kHoldsPerSessionMax) return;
    if (reader_ == nullptr) {
      reader_ = std::make_unique<FakeTrainer>(world, FakeTrainer::Options());
      ASSERT_TRUE(reader_->connect());
    }
    const ViewPoint view = some_listed();
    fb::HoldCommitT hold;
    hold.run = "tiny";
    hold.lineage = view.lineage;
    hold.step = view.step;
    reader_->send(hold);
    world.run();
    ASSERT_TRUE(reader_->take<fb::CommitHeldT>().has_value()) << reader_->error();
    held_.insert(view);
  }
  // Removes a commit without force: held and otherwise protected commits stay.
  void remove_some() {
    if (listed_.empty()) return;
    const ViewPoint view = some_listed();
    const auto reply = job_.ranks[0]->query(
        "rm", Json{{"target", fmt::format("tiny~{}@{}", view.lineage, view.step)}}.dump());
    if (held_.contains(view)) {
      ASSERT_EQ(reply.exit_code, 1) << "a held commit was removed";
    }
    if (reply.exit_code == 0) note_removed(Json::parse(reply.json));
  }
  void note_removed(const Json& plan) {
    for (const Json& removed : plan.at("removed")) {
      listed_.erase({removed.at("lineage"), removed.at("step")});
      removed_ += removed.at("again") == false ? 1 : 0;
      left_ += removed.at("units_left") > 0 ? 1 : 0;
    }
  }
  void prune() {
    const std::string metrics = world.daemon().metrics_text();
    constexpr std::string_view kDeltas = R"(ckptd_fragment_bytes_total{codec="delta"} )";
    delta_bytes_ = std::stod(metrics.substr(metrics.find(kDeltas) + kDeltas.size()));
    const Json pruned = ask(job_, "prune", rules());
    note_removed(pruned);
    ASSERT_EQ(pruned.at("kept").size(), listed_.size());
    expect_views(held_);
  }

  void expect_every_view() { expect_views(listed_); }
  void expect_views(const std::set<ViewPoint>& views) {
    FakeTrainer reader(world, {});
    ASSERT_TRUE(reader.connect());
    for (const ViewPoint& point : views) {
      ASSERT_TRUE(listed_.contains(point)) << point.lineage << "@" << point.step;
      fb::OpenRestoreT request;
      request.run = "tiny";
      request.lineage = point.lineage;
      request.step = point.step;
      request.exact = true;
      std::vector<ViewPoint> versions;
      for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
        const auto version = model_.newest(unit, point);
        if (!version) continue;
        request.wants.emplace_back(unit, 0, 0, job_.model[unit].bytes);
        versions.push_back(*version);
      }
      const auto restored = reader.restore(request);
      ASSERT_EQ(restored.error, "") << point.lineage << "@" << point.step;
      for (size_t i = 0; i < versions.size(); ++i) {
        const ckpt::UnitId unit = request.wants[i].unit();
        ASSERT_EQ(restored.steps[i], versions[i].step);
        for (uint64_t at = 0; at < restored.bytes[i].size(); ++at) {
          ASSERT_EQ(restored.bytes[i][at], byte_of(unit, versions[i].step, versions[i].lineage, at))
              << point.lineage << "@" << point.step << " unit " << unit << " byte " << at;
        }
      }
    }
    reader.die();
    world.run();
  }
  std::vector<Json> documents() {
    const std::string tiny = R"({"target": "tiny"})";
    std::vector<Json> all = {ask_root("runs", "{}"), ask_root("log", tiny), ask_root("keep", tiny),
                             ask_root("log", R"({"target": "tiny", "deleted": true})")};
    for (const ViewPoint& point : listed_) {
      all.push_back(ask_root(
          "show", Json{{"target", fmt::format("tiny~{}@{}", point.lineage, point.step)}}.dump()));
    }
    return all;
  }

  void play(uint64_t seed) {
    random_.seed(seed);
    start(fb::ResumeMode::Start);
    commit(/*full=*/true);
    for (int round = 0; round < 3 && !HasFatalFailure(); ++round) {
      for (uint64_t events = 4 + draw(5); events > 0 && !HasFatalFailure(); --events) {
        const uint64_t kind = draw(10);
        if (kind < 6) {
          commit(kind == 0);
        } else if (kind < 8) {
          kind == 6 ? resume_somewhere() : tag_or_pin();
        } else {
          kind == 8 ? hold_some() : remove_some();
        }
      }
      prune();
      world.run();
    }
    if (HasFatalFailure()) return;
    held_.clear();
    restart();  // restores read the disk, not memory
    expect_every_view();
    expect_verified();
    const auto before = documents();
    ask_root("rebuild", "");
    EXPECT_EQ(documents(), before);
    world.kill_daemon();
    world.lose_catalog();
    ASSERT_TRUE(world.start().ok());
    world.run();
    EXPECT_EQ(documents(), before);
    expect_every_view();
  }

  Job job_;
  const bool deltas_;
  HistoryModel model_;
  std::set<ViewPoint> listed_;
  std::unique_ptr<FakeTrainer> reader_;
  std::set<ViewPoint> held_;
  std::mt19937_64 random_;
  ckpt::Step step_ = 0;
  double delta_bytes_ = 0;  // written before the last prune
  size_t removed_ = 0;
  size_t left_ = 0;  // deletions that left units for other views
};

class PrunedHistories : public Pruned, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(PrunedHistories, KeptViewsRestoreBitForBit) {
  const uint64_t seed =
      static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed()) * 100 + GetParam();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  play(seed);
  RecordProperty("seed", static_cast<int>(seed));
  EXPECT_FALSE(listed_.empty());
}

class PrunedDeltas : public Pruned {
 protected:
  PrunedDeltas() : Pruned(/*deltas=*/true) {}
};

TEST_F(PrunedDeltas, HistoriesWriteDeltas) {
  play(4);
  EXPECT_GT(delta_bytes_, 0);
}

class PrunedDeltaHistories : public PrunedDeltas, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(PrunedDeltaHistories, KeptViewsRestoreBitForBit) {
  const uint64_t seed =
      static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed()) * 100 + GetParam();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  play(seed);
  RecordProperty("seed", static_cast<int>(seed));
  EXPECT_FALSE(listed_.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, PrunedDeltaHistories, ::testing::Range<uint64_t>(0, 20));
INSTANTIATE_TEST_SUITE_P(Seeds, PrunedHistories, ::testing::Range<uint64_t>(0, 20));

// The histories are such that some commits are removed, and some of those leave units for others.
TEST_F(Pruned, HistoriesRemoveCommitsAndLeaveUnits) {
  play(4);
  EXPECT_GT(removed_, 3u);
  EXPECT_GT(left_, 0u);
}

}  // namespace
}  // namespace ckptd::testing
