#include "tests/simulation/simulation.h"

namespace ckptd::testing {

namespace {
constexpr uint32_t kRanks = 3;
}  // namespace

uint64_t Simulation::tokens_by(ckpt::UnitId unit, ckpt::Step step) {
  return step * (3 + 2 * unit + step);
}

Simulation::Simulation(const Options& options)
    : options_(options),
      random_(options.seed),
      world_({.seed = options.seed,
              .segment_bytes = 512u << 10,
              .scrub_bytes_per_second = options.scrub ? 1u << 30 : 0}),
      job_(world_, kRanks, kTrains) {
  // A rank's part of the largest unit nearly fills a slab and is restored in slices; other units
  // share a slab. With `unchanged` that part has blocks of its own and takes two slabs.
  const uint64_t largest = options.unchanged ? 330'000 : 175'000;
  const uint64_t bytes[] = {1'000, 5'000, 20'000, largest};
  for (size_t unit = 0; unit < job_.model.size(); ++unit) job_.model[unit].bytes = bytes[unit];
  if (options.grows) start_growing();
}

void Simulation::play() {
  ASSERT_TRUE(start_daemon().ok());
  form_group();
  for (int i = 0; i < options_.events && !lost_ && !::testing::Test::HasFailure(); ++i) event();
  if (lost_) return;
  // At the end the disk works, the group forms again, and training goes on.
  world_.disk().set_faults({});
  if (full_) clear_disk_full();
  if (::testing::Test::HasFailure()) return;
  restart_daemon();
  form_group();
  if (lost_ || ::testing::Test::HasFailure()) return;
  save_whole();
  check();
}

void Simulation::event() {
  if (!group_complete()) {
    form_group();
    return;
  }
  if (options_.prune && chance(12)) prune();
  if (options_.scrub && chance(40)) run_scrub();
  if (options_.full && chance(15)) full_ ? clear_disk_full() : fill_the_disk();
  const uint64_t which = pick(100);
  if (which < 35) {
    begin_snapshot();
  } else if (which < 70) {
    fill_some();
  } else if (which < 78) {
    lose_rank();
  } else if (which < 86) {
    restart_daemon();
  } else if (which < 90) {
    world_.tick(std::chrono::seconds(pick(3) == 0 ? 61 : 1));
  } else if (which < 94 && (options_.disk_faults || options_.silent_faults)) {
    break_the_disk();
  } else {
    check();
  }
  // Sometimes the daemon finishes everything first, sometimes it makes only a few polls.
  if (chance(50)) {
    world_.run();
  } else {
    for (uint64_t polls = pick(6); polls > 0; --polls) world_.daemon().poll();
  }
  listen();
}

bool Simulation::group_complete() const {
  if (job_.ranks.size() != kRanks) return false;
  for (const auto& rank : job_.ranks) {
    if (rank == nullptr || !rank->in_epoch()) return false;
  }
  return true;
}

// Replaces dead ranks. All ranks join the next epoch and restore its resume point.
void Simulation::form_group() {
  job_.ranks.resize(kRanks);
  for (ckpt::Rank rank = 0; rank < kRanks; ++rank) {
    if (job_.ranks[rank] == nullptr) job_.replace(rank);
  }
  world_.run();
  listen();
  if (::testing::Test::HasFailure()) return;
  for (ckpt::Rank rank = 0; rank < kRanks; ++rank) {
    job_.ranks[rank]->join(rank, kRanks, fb::ResumeMode::Continue);
  }
  world_.run();
  listen();
  size_t started = 0;
  std::string errors;
  for (auto& rank : job_.ranks) {
    if (rank->started()) {
      ++started;
    } else {
      errors += rank->error() + "; ";
    }
  }
  if (started == 0 && full_) {
    clear_disk_full();
    return;
  }
  if (started == 0 && options_.disk_faults) {
    // After an error the journal is closed for writing: only a restart helps.
    restart_daemon();
    return;
  }
  if (started == 0 && options_.silent_faults) {
    expect_lost_views(errors);
    return;
  }
  ASSERT_EQ(started, kRanks) << errors << last_refusal_;
  const auto& epoch = job_.ranks[0]->epoch();
  for (auto& rank : job_.ranks) {
    ASSERT_EQ(rank->epoch().lineage, epoch.lineage);
    ASSERT_EQ(rank->epoch().resume_step, epoch.resume_step);
  }
  // Announced commits are never lost: the resume point is at least the newest of them.
  if (epoch.has_resume) forks_[epoch.lineage] = {epoch.resume_lineage, epoch.resume_step};
  list_commits();
  const std::set<Point> spoiled = spoiled_points();
  for (const Point& point : announced_) {
    if (point.first != epoch.resume_lineage || !complete_at(point)) continue;
    if (spoiled.contains(point)) continue;
    // Pruned before a commit of an earlier step, durable later, made the view complete.
    if (may_be_gone_.contains(point) && !listed_.contains(point)) continue;
    EXPECT_TRUE(epoch.has_resume);
    EXPECT_GE(epoch.resume_step, point.second);
  }
  step_ = epoch.has_resume ? epoch.resume_step : 0;
  if (options_.grows) resume_growth(epoch);
  if (epoch.has_resume) check_restore({epoch.resume_lineage, epoch.resume_step});
}

void Simulation::save_whole() {
  step_ += 1;
  begin_ranks(/*all=*/true);
  world_.run();
  for (auto& rank : job_.ranks) {
    const bool filled = rank->fill(step_);
    ASSERT_TRUE(filled) << "step " << step_ << ": " << rank->error() << last_refusal_;
  }
  world_.run();
  listen();
  EXPECT_TRUE(announced_.contains({job_.ranks[0]->epoch().lineage, step_}))
      << "step " << step_ << ": " << job_.ranks[0]->snapshot(step_).reason << last_refusal_;
}

void Simulation::begin_snapshot() {
  step_ += 1 + pick(3);
  begin_ranks(/*all=*/false);
}

// Without `all` a rank may also never begin the snapshot.
void Simulation::begin_ranks(bool all) {
  const Point point{job_.ranks[0]->epoch().lineage, step_};
  const uint64_t salt = next_salt_++;
  begun_[point].push_back({.salt = salt, .announced = false});
  if (options_.grows) grow(point);
  const ckpt::Plan plan = job_.plan(units_at(point));
  for (auto& rank : job_.ranks) {
    rank->byte_at = [this](ckpt::UnitId unit, ckpt::Step step, uint64_t of, uint64_t offset) {
      if (ckpt::is_blob(unit)) return state_byte(unit, step, of, offset);
      return byte_of(unit, content_of(unit, step, of), offset);
    };
    if (options_.blobs) rank->blobs = blobs_of(salt, rank->epoch().rank);
    rank->expert_tokens.clear();
    for (ckpt::UnitId unit = 1; unit < job_.registered().size(); ++unit) {
      rank->expert_tokens.emplace_back(0, unit - 1, tokens_by(unit, step_));
    }
    if (all || !chance(3)) rank->begin(step_, plan, salt);
  }
}

// With `unchanged` a snapshot may also be overtaken by later snapshots.
void Simulation::fill_some() {
  for (auto& rank : job_.ranks) {
    if (rank == nullptr || !chance(80)) continue;
    for (auto& [step, snapshot] : rank->snapshots()) {
      if (options_.unchanged && chance(30)) continue;
      if (snapshot.level == fb::SnapshotLevel::Open && !snapshot.sealed) rank->fill(step);
    }
  }
}

void Simulation::lose_rank() {
  const auto rank = pick(kRanks);
  job_.ranks[rank]->die();
  job_.ranks[rank] = nullptr;
}

// New commits are read back after 2 s without writes. Usually other events come in between.
void Simulation::run_scrub() {
  world_.tick(std::chrono::milliseconds(2'000));
  for (uint64_t ticks = pick(6); ticks > 0; --ticks) {
    for (uint64_t polls = pick(40); polls > 0; --polls) world_.daemon().poll();
    world_.tick(std::chrono::milliseconds(20));
  }
  const std::string metrics = world_.daemon().metrics_text();
  ASSERT_NE(metrics.find("\nckptd_scrub_bytes_total "), std::string::npos);
  if (metrics.find("\nckptd_scrub_bytes_total 0\n") == std::string::npos) ++scrubs_;
}

// A dry run names the commits to remove. The prune may be overtaken by other events.
void Simulation::prune() {
  FakeTrainer asker(world_, kAsks);
  ASSERT_TRUE(asker.connect());
  const std::string rules = pick(2) == 0 ? fmt::format(R"("last": {})", 1 + pick(3))
                                         : fmt::format(R"("every_steps": {})", 2 + pick(6));
  const auto dry = asker.query(
      "prune", fmt::format(R"({{"target": "tiny", "dry_run": true, "rules": {{{}}}}})", rules));
  if (dry.exit_code == 0) {
    const auto plan = nlohmann::json::parse(dry.json);
    for (const auto& kept : plan.at("kept")) known_.emplace(kept.at("lineage"), kept.at("step"));
    for (const auto& removed : plan.at("removed")) {
      // The commit may be removed before it was ever listed, and other views still show its units.
      known_.emplace(removed.at("lineage"), removed.at("step"));
      may_be_gone_.emplace(removed.at("lineage"), removed.at("step"));
    }
    fb::QueryT query;
    query.verb = "prune";
    query.args = fmt::format(R"({{"target": "tiny", "rules": {{{}}}}})", rules);
    asker.send(std::move(query));
    for (uint64_t polls = pick(8); polls > 0; --polls) world_.daemon().poll();
  }
  asker.die();
}

}  // namespace ckptd::testing
