#include "tests/simulation/simulation.h"

#include "ckptd/limits.h"

namespace ckptd::testing {

namespace {
constexpr uint32_t kRanks = 3;
}

Simulation::Simulation(const Options& options)
    : options_(options),
      random_(options.seed),
      world_({.seed = options.seed, .segment_bytes = 1u << 20}),
      job_(world_, kRanks) {}

void Simulation::play() {
  ASSERT_TRUE(world_.start().ok());
  form_group();
  for (int i = 0; i < options_.events && !::testing::Test::HasFailure(); ++i) event();
  // At the end the disk is whole, the group forms again, and training goes on.
  world_.disk().set_faults({});
  if (::testing::Test::HasFailure()) return;
  restart_daemon();
  form_group();
  if (::testing::Test::HasFailure()) return;
  step_ += 1;
  const uint64_t salt = next_salt_++;
  begun_[{job_.ranks[0]->epoch().lineage, step_}].push_back({.salt = salt, .announced = false});
  job_.commit(step_, salt);
  listen();
  check();
}

void Simulation::event() {
  if (!group_whole()) {
    form_group();
    return;
  }
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
  } else if (which < 94 && options_.disk_faults) {
    break_the_disk();
  } else {
    check();
  }
  // Sometimes much happens before the daemon gets on, sometimes it finishes everything first.
  if (chance(50)) {
    world_.run();
  } else {
    for (uint64_t polls = pick(6); polls > 0; --polls) world_.daemon().poll();
  }
  listen();
}

bool Simulation::group_whole() const {
  if (job_.ranks.size() != kRanks) return false;
  for (const auto& rank : job_.ranks) {
    if (rank == nullptr || rank->epoch_ended()) return false;
  }
  return true;
}

// Ranks that died are replaced; everybody joins the next epoch and restores what it names.
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
  if (started == 0 && options_.disk_faults) {
    // The journal is closed for writing after an error: nothing goes on without a restart.
    restart_daemon();
    return;
  }
  ASSERT_EQ(started, kRanks) << errors;
  const auto& epoch = job_.ranks[0]->epoch();
  for (auto& rank : job_.ranks) {
    ASSERT_EQ(rank->epoch().lineage, epoch.lineage);
    ASSERT_EQ(rank->epoch().resume_step, epoch.resume_step);
  }
  // What was announced is never lost: the resume point is the newest announced commit at least.
  for (const Point& point : announced_) {
    if (point.first != epoch.resume_lineage) continue;
    EXPECT_TRUE(epoch.has_resume);
    EXPECT_GE(epoch.resume_step, point.second);
  }
  step_ = epoch.has_resume ? epoch.resume_step : 0;
  if (epoch.has_resume) check_restore({epoch.resume_lineage, epoch.resume_step});
}

bool Simulation::begin_snapshot() {
  step_ += 1 + pick(3);
  const Point point{job_.ranks[0]->epoch().lineage, step_};
  const uint64_t salt = next_salt_++;
  begun_[point].push_back({.salt = salt, .announced = false});
  const ckpt::Plan plan = job_.plan(job_.all_units());
  for (auto& rank : job_.ranks) {
    if (!chance(3)) rank->begin(step_, plan, salt);  // a rank may also lag behind for good
  }
  return true;
}

void Simulation::fill_some() {
  for (auto& rank : job_.ranks) {
    if (!chance(80)) continue;
    for (auto& [step, snapshot] : rank->snapshots()) {
      if (snapshot.level == fb::SnapshotLevel::Open && !snapshot.sealed) rank->fill(step);
    }
  }
}

void Simulation::lose_rank() {
  const auto rank = pick(kRanks);
  job_.ranks[rank]->die();
  job_.ranks[rank] = nullptr;
}

void Simulation::restart_daemon() {
  const uint64_t way = pick(4);
  const bool power = way == 0;
  if (way == 1) {
    world_.stop();
  } else if (power) {
    world_.lose_power();
  } else {
    world_.kill_daemon();
  }
  const Status started = world_.start();
  ASSERT_TRUE(started.ok()) << started.error().message;
  for (auto& rank : job_.ranks) {
    if (rank == nullptr) continue;
    if (power || chance(5)) {
      rank = nullptr;  // the machine went down with everything, or the trainer died meanwhile
    } else if (!rank->reconnect()) {
      rank->error();
      rank = nullptr;
    }
  }
}

void Simulation::break_the_disk() {
  MemoryFaults faults;
  faults.path_prefix = chance(80) ? "segments/" : "journal/";
  (chance(50) ? faults.fail_nth_write : faults.fail_nth_sync) = 1 + pick(4);
  world_.disk().set_faults(faults);
}

void Simulation::listen() {
  for (auto& rank : job_.ranks) {
    if (rank == nullptr) continue;
    rank->listen();
    for (auto& [step, snapshot] : rank->snapshots()) {
      if (snapshot.level != fb::SnapshotLevel::Durable) continue;
      const Point point{rank->epoch().lineage, step};
      announced_.insert(point);
      for (Known& known : begun_[point]) {
        if (known.salt == snapshot.salt) known.announced = true;
      }
    }
  }
}

// Lists every commit, and restores each that is listed.
void Simulation::check() {
  world_.run();
  listen();
  FakeTrainer asker(world_, {});
  ASSERT_TRUE(asker.connect());
  std::set<Point> listed;
  const auto reply = asker.query("log", R"({"target": "tiny"})");
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  for (const auto& one : nlohmann::json::parse(reply.json)) {
    EXPECT_EQ(one.at("level"), "durable") << one;
    listed.emplace(one.at("lineage"), one.at("step"));
  }
  const auto lineage = job_.ranks[0] == nullptr ? 0 : job_.ranks[0]->epoch().lineage;
  for (const Point& point : announced_) {
    if (point.first == lineage) {
      EXPECT_TRUE(listed.contains(point)) << "lineage " << point.first << " step " << point.second;
    }
  }
  asker.die();
  for (const Point& point : listed) {
    EXPECT_TRUE(begun_.contains(point)) << "nobody took a snapshot of step " << point.second;
    if (chance(30)) check_restore(point);
  }
  const auto some = announced_.begin();
  if (some != announced_.end() && !::testing::Test::HasFailure()) {
    check_restore(*std::next(some, static_cast<ptrdiff_t>(pick(announced_.size()))));
  }
}

// The commit at this point holds, bit for bit, one whole snapshot that was taken there; the one
// that was announced, if one was.
void Simulation::check_restore(const Point& point) {
  FakeTrainer reader(world_, {});
  ASSERT_TRUE(reader.connect());
  fb::OpenRestoreT request = job_.whole(point.second);
  request.lineage = point.first;
  request.exact = true;
  const auto restored = reader.restore(request);
  ASSERT_EQ(restored.error, "") << "lineage " << point.first << " step " << point.second;
  size_t matching = 0;
  for (const Known& known : begun_[point]) {
    bool same = true;
    for (ckpt::UnitId unit = 0; same && unit < job_.model.size(); ++unit) {
      for (uint64_t i = 0; same && i < job_.model[unit].bytes; ++i) {
        same = restored.bytes[unit][i] == state_byte(unit, point.second, known.salt, i);
      }
    }
    if (same) ++matching;
    if (known.announced) {
      EXPECT_TRUE(same) << "lineage " << point.first << " step " << point.second
                        << ": other bytes than were announced";
    }
  }
  EXPECT_EQ(matching, 1u) << "lineage " << point.first << " step " << point.second
                          << ": not the bytes of any snapshot";
  reader.die();
}

}  // namespace ckptd::testing
