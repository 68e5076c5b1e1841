#include "tests/simulation/simulation.h"

#include "ckptd/limits.h"

namespace ckptd::testing {

namespace {
constexpr uint32_t kRanks = 3;

// Tokens routed to the expert of a unit by a step: the same in every line of history that has it.
uint64_t tokens_by(ckpt::UnitId unit, ckpt::Step step) { return step * (3 + 2 * unit + step); }
}  // namespace

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
  begin_ranks(/*all=*/true);
  world_.run();
  job_.fill(step_);
  world_.run();
  listen();
  EXPECT_TRUE(announced_.contains({job_.ranks[0]->epoch().lineage, step_}));
  check();
}

void Simulation::event() {
  if (!group_whole()) {
    form_group();
    return;
  }
  if (options_.prune && chance(12)) prune();
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
  if (epoch.has_resume) forks_[epoch.lineage] = {epoch.resume_lineage, epoch.resume_step};
  list_commits();
  for (const Point& point : announced_) {
    if (point.first != epoch.resume_lineage || !complete_at(point)) continue;
    EXPECT_TRUE(epoch.has_resume);
    EXPECT_GE(epoch.resume_step, point.second);
  }
  step_ = epoch.has_resume ? epoch.resume_step : 0;
  if (epoch.has_resume) check_restore({epoch.resume_lineage, epoch.resume_step});
}

void Simulation::begin_snapshot() {
  step_ += 1 + pick(3);
  begin_ranks(/*all=*/false);
}

// Not `all`: a rank may also lag behind for good.
void Simulation::begin_ranks(bool all) {
  const Point point{job_.ranks[0]->epoch().lineage, step_};
  const uint64_t salt = next_salt_++;
  begun_[point].push_back({.salt = salt, .announced = false});
  const ckpt::Plan plan = job_.plan(units_at(point));
  for (auto& rank : job_.ranks) {
    rank->expert_tokens.clear();
    for (ckpt::UnitId unit = 1; unit < job_.model.size(); ++unit) {
      rank->expert_tokens.emplace_back(0, unit - 1, tokens_by(unit, step_));
    }
    if (all || !chance(3)) rank->begin(step_, plan, salt);
  }
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

// A dry run says what would go; then it goes, or something comes in between.
void Simulation::prune() {
  FakeTrainer asker(world_, {});
  ASSERT_TRUE(asker.connect());
  const std::string rules = pick(2) == 0 ? fmt::format(R"("last": {})", 1 + pick(3))
                                         : fmt::format(R"("every_steps": {})", 2 + pick(6));
  const auto dry = asker.query(
      "prune", fmt::format(R"({{"target": "tiny", "dry_run": true, "rules": {{{}}}}})", rules));
  if (dry.exit_code == 0) {
    const auto plan = nlohmann::json::parse(dry.json);
    for (const auto& kept : plan.at("kept")) known_.emplace(kept.at("lineage"), kept.at("step"));
    for (const auto& removed : plan.at("removed")) {
      // It may be removed before anybody saw it listed, and other views still show units of it.
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

void Simulation::list_commits() {
  FakeTrainer asker(world_, {});
  ASSERT_TRUE(asker.connect());
  listed_.clear();
  const auto reply = asker.query("log", R"({"target": "tiny"})");
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  for (const auto& one : nlohmann::json::parse(reply.json)) {
    EXPECT_EQ(one.at("level"), "durable") << one;
    listed_.emplace(one.at("lineage"), one.at("step"));
  }
  asker.die();
  for (const Point& point : known_) {
    EXPECT_TRUE(listed_.contains(point) || may_be_gone_.contains(point))
        << "lineage " << point.first << " step " << point.second << " is gone: " << reply.json;
  }
  known_.insert(listed_.begin(), listed_.end());
}

// The same for every attempt at this point: the trainer state, and one expert or more.
std::vector<ckpt::UnitId> Simulation::units_at(const Point& point) const {
  if (!options_.partial) return job_.all_units();
  const uint64_t which = 1 + (point.first * 31 + point.second * 17) % 7;
  std::vector<ckpt::UnitId> units = {0};
  for (ckpt::UnitId unit = 1; unit < job_.model.size(); ++unit) {
    if ((which >> (unit - 1) & 1) != 0) units.push_back(unit);
  }
  return units;
}

std::optional<Simulation::Point> Simulation::version_at(ckpt::UnitId unit, Point point) const {
  for (;;) {
    for (auto commit = known_.upper_bound(point); commit != known_.begin();) {
      --commit;
      if (commit->first != point.first) break;
      const auto units = units_at(*commit);
      if (std::find(units.begin(), units.end(), unit) != units.end()) return *commit;
    }
    const auto fork = forks_.find(point.first);
    if (fork == forks_.end()) return std::nullopt;
    point = {fork->second.first, std::min(point.second, fork->second.second)};
  }
}

bool Simulation::complete_at(const Point& point) const {
  const auto units = job_.all_units();
  return std::all_of(units.begin(), units.end(),
                     [&](ckpt::UnitId unit) { return version_at(unit, point).has_value(); });
}

// Restores some of the commits that are listed.
void Simulation::check() {
  world_.run();
  listen();
  list_commits();
  const auto lineage = job_.ranks[0] == nullptr ? 0 : job_.ranks[0]->epoch().lineage;
  for (const Point& point : announced_) {
    if (point.first == lineage && !may_be_gone_.contains(point)) {
      EXPECT_TRUE(listed_.contains(point)) << "lineage " << point.first << " step " << point.second;
    }
  }
  for (const Point& point : std::set<Point>(listed_)) {  // it is listed anew meanwhile
    EXPECT_TRUE(begun_.contains(point)) << "nobody took a snapshot of step " << point.second;
    if (chance(30)) check_restore(point);
  }
  const auto some = announced_.begin();
  if (some != announced_.end() && !::testing::Test::HasFailure()) {
    const Point point = *std::next(some, static_cast<ptrdiff_t>(pick(announced_.size())));
    if (listed_.contains(point) || !may_be_gone_.contains(point)) check_restore(point);
  }
}

// The bytes are those of one snapshot that was taken there; of the one that was announced, if one
// was.
void Simulation::check_bytes(ckpt::UnitId unit, const Point& version,
                             const std::vector<std::byte>& bytes) {
  size_t matching = 0;
  for (const Known& known : begun_[version]) {
    bool same = true;
    for (uint64_t i = 0; same && i < bytes.size(); ++i) {
      same = bytes[i] == state_byte(unit, version.second, known.salt, i);
    }
    if (same) ++matching;
    if (known.announced) {
      EXPECT_TRUE(same) << "lineage " << version.first << " step " << version.second << " unit "
                        << unit << ": other bytes than were announced";
    }
  }
  EXPECT_EQ(matching, 1u) << "lineage " << version.first << " step " << version.second << " unit "
                          << unit << ": not the bytes of any snapshot";
}

// The view says of every unit which version it has, and of every expert how many tokens it lost.
void Simulation::check_view(const Point& point) {
  FakeTrainer asker(world_, {});
  ASSERT_TRUE(asker.connect());
  const auto reply =
      asker.query("show", fmt::format(R"({{"target": "tiny~{}@{}"}})", point.first, point.second));
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  asker.die();
  const auto view = nlohmann::json::parse(reply.json);
  EXPECT_EQ(view.at("complete"), complete_at(point)) << view;
  for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
    const auto& shown = view.at("units").at(unit);
    const auto version = version_at(unit, point);
    if (!version) {
      EXPECT_TRUE(shown.at("version_step").is_null()) << shown;
      continue;
    }
    EXPECT_EQ(shown.at("version_step"), version->second) << shown;
    EXPECT_EQ(shown.at("version_lineage"), version->first) << shown;
    if (unit == 0 || !options_.partial) continue;
    const uint64_t lost = tokens_by(unit, point.second) - tokens_by(unit, version->second);
    EXPECT_EQ(shown.at("lost_tokens"), lost) << shown;
  }
}

// The view at this point holds, bit for bit, the versions that the oracle says it has.
void Simulation::check_restore(const Point& point) {
  world_.run();  // what is on its way may be older than the point
  list_commits();
  check_view(point);
  if (!complete_at(point)) return;
  FakeTrainer reader(world_, {});
  ASSERT_TRUE(reader.connect());
  fb::OpenRestoreT request = job_.whole(point.second);
  request.lineage = point.first;
  request.exact = true;
  const auto restored = reader.restore(request);
  ASSERT_EQ(restored.error, "") << "lineage " << point.first << " step " << point.second;
  for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
    const auto version = version_at(unit, point);
    EXPECT_EQ(restored.steps[unit], version->second);
    check_bytes(unit, *version, restored.bytes[unit]);
  }
  reader.die();
}

}  // namespace ckptd::testing
