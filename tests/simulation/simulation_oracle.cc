// The oracle of a simulation: the expected history, and the checks of the daemon's answers.
#include "tests/ckptd/daemon/collision.h"
#include "tests/simulation/disk_truth.h"
#include "tests/simulation/simulation.h"

namespace ckptd::testing {

void Simulation::listen() {
  for (auto& rank : job_.ranks) {
    if (rank == nullptr) continue;
    rank->listen();
    for (std::string error; options_.full && !(error = rank->error()).empty();) {
      if (full_) ++refused_;
      last_refusal_ = error;
    }
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
  FakeTrainer asker(world_, kAsks);
  ASSERT_TRUE(asker.connect());
  listed_.clear();
  const auto reply = asker.query("log", R"({"target": "tiny"})");
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  for (const auto& one : nlohmann::json::parse(reply.json)) {
    const Point point{one.at("lineage"), one.at("step")};
    // A commit is listed as damaged only if the disk has damaged it.
    if (one.at("level") != "durable") {
      EXPECT_EQ(one.at("level"), "damaged");
      EXPECT_TRUE(spoiled_points().contains(point)) << one;
    }
    listed_.insert(point);
  }
  asker.die();
  for (const Point& point : known_) {
    EXPECT_TRUE(listed_.contains(point) || may_be_gone_.contains(point))
        << "lineage " << point.first << " step " << point.second << " is gone: " << reply.json;
  }
  known_.insert(listed_.begin(), listed_.end());
}

// All ranks were refused, because the disk has spoiled every commit that they could resume from.
void Simulation::expect_lost_views(const std::string& errors) {
  EXPECT_NE(errors.find("is complete, and tiny~"), std::string::npos) << errors;
  FakeTrainer asker(world_, kAsks);
  ASSERT_TRUE(asker.connect());
  const auto log = nlohmann::json::parse(asker.query("log", R"({"target": "tiny"})").json);
  asker.die();
  EXPECT_FALSE(log.empty());
  for (const auto& commit : log) EXPECT_EQ(commit.at("level"), "damaged") << commit;
  lost_ = true;
}

// The same units for every attempt at this point: the trainer's unit, and one expert or more.
std::vector<ckpt::UnitId> Simulation::units_at(const Point& point) const {
  const uint64_t which = options_.partial ? 1 + (point.first * 31 + point.second * 17) % 7 : 7;
  std::vector<ckpt::UnitId> units = {0};
  const auto base = static_cast<ckpt::UnitId>(job_.registered().size());
  for (ckpt::UnitId unit = 1; unit < base; ++unit) {
    if ((which >> (unit - 1) & 1) != 0) units.push_back(unit);
  }
  const auto grown = grown_at_.find(point);
  for (size_t i = 0; grown != grown_at_.end() && i < grown->second; ++i) {
    units.push_back(static_cast<ckpt::UnitId>(base + i));
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
  for (ckpt::UnitId unit = 0; unit < job_.registered().size(); ++unit) {
    if (!version_at(unit, point)) return false;
  }
  return true;
}

// Restores some of the listed commits.
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
  for (const Point& point : std::set<Point>(listed_)) {  // a copy: check_restore() lists anew
    EXPECT_TRUE(begun_.contains(point)) << "nobody took a snapshot of step " << point.second;
    if (chance(30)) check_restore(point);
  }
  const auto some = announced_.begin();
  if (some != announced_.end() && !::testing::Test::HasFailure()) {
    const Point point = *std::next(some, static_cast<ptrdiff_t>(pick(announced_.size())));
    if (listed_.contains(point) || !may_be_gone_.contains(point)) check_restore(point);
  }
  if (options_.silent_faults && !::testing::Test::HasFailure()) check_verify();
}

std::set<Simulation::Point> Simulation::spoiled_points() {
  return options_.silent_faults ? spoiled_commits(world_) : std::set<Point>();
}

// verify names exactly the damaged commits.
void Simulation::check_verify() {
  FakeTrainer root(world_, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto reply = root.query("verify", "");
  root.die();
  std::set<Point> named;
  const auto report = nlohmann::json::parse(reply.json);
  for (const auto& error : report.at("errors"))
    named.emplace(error.at("lineage"), error.at("step"));
  EXPECT_EQ(named, spoiled_points()) << reply.json;
}

Simulation::Content Simulation::content_of(ckpt::UnitId unit, ckpt::Step step,
                                           uint64_t salt) const {
  if (!options_.unchanged || unit == 0) return {step, salt, false};
  // Mostly unchanged; otherwise a content that the unit may have had before, and may get again.
  const uint64_t drawn = ((salt * 8 + unit) * 0x9e3779b97f4a7c15ull >> 32) % 8;
  const ckpt::Step content_step = step - step % 40 + (drawn < 5 ? 0 : drawn - 4);
  // No colliding payloads with silent faults: CRC32C cannot detect a payload that overwrote another
  // one with the same CRC, under an intact header. By chance this happens once in 2^32 writes.
  return {content_step, 0, !options_.silent_faults && (step + salt) % 3 == 0};
}

std::byte Simulation::byte_of(ckpt::UnitId unit, const Content& content, uint64_t offset) const {
  std::byte byte = state_byte(unit, content.step, content.salt, offset);
  // The other bytes are the same at every step.
  if (options_.deltas && offset % 61 != 0) byte = state_byte(unit, 0, 0, offset);
  if (!content.collides) return byte;
  return collide(byte, offset, job_.model[unit].bytes / 2);
}

bool Simulation::same_bytes(ckpt::UnitId unit, const Content& content,
                            const std::vector<std::byte>& bytes) const {
  for (uint64_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != byte_of(unit, content, i)) return false;
  }
  return true;
}

// The bytes are those of exactly one attempt at this point; of the announced attempt, if there is
// one.
void Simulation::check_bytes(ckpt::UnitId unit, const Point& version,
                             const std::vector<std::byte>& bytes) {
  std::set<Content> matching;
  for (const Known& known : begun_[version]) {
    const Content content = content_of(unit, version.second, known.salt);
    const bool same = same_bytes(unit, content, bytes);
    if (same) matching.insert(content);
    if (known.announced) {
      EXPECT_TRUE(same) << "lineage " << version.first << " step " << version.second << " unit "
                        << unit << ": other bytes than were announced";
    }
  }
  EXPECT_EQ(matching.size(), 1u) << "lineage " << version.first << " step " << version.second
                                 << " unit " << unit << ": not the bytes of any snapshot";
}

// `show` reports the version of every unit, and the tokens that every expert has lost.
void Simulation::check_view(const Point& point) {
  FakeTrainer asker(world_, kAsks);
  ASSERT_TRUE(asker.connect());
  const auto reply =
      asker.query("show", fmt::format(R"({{"target": "tiny~{}@{}"}})", point.first, point.second));
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  asker.die();
  const auto view = nlohmann::json::parse(reply.json);
  EXPECT_EQ(view.at("complete"), complete_at(point)) << view;
  size_t row = 0;
  for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
    const auto version = version_at(unit, point);
    const bool grown = unit >= job_.registered().size();
    if (grown && !version) continue;  // the view does not have it
    const auto& shown = view.at("units").at(row++);
    EXPECT_EQ(shown.at("unit"), job_.model[unit].name) << view;
    if (!version) {
      EXPECT_TRUE(shown.at("version_step").is_null()) << shown;
      continue;
    }
    EXPECT_EQ(shown.at("version_step"), version->second) << shown;
    EXPECT_EQ(shown.at("version_lineage"), version->first) << shown;
    if (unit == 0 || grown || !options_.partial) continue;
    const uint64_t lost = tokens_by(unit, point.second) - tokens_by(unit, version->second);
    EXPECT_EQ(shown.at("lost_tokens"), lost) << shown;
  }
  EXPECT_EQ(view.at("units").size(), row) << view;
}

// The view at this point restores, bit for bit, to the versions of the oracle.
void Simulation::check_restore(const Point& point) {
  world_.run();  // snapshots in flight may be older than the point
  list_commits();
  if (spoiled_points().contains(point)) {
    check_spoiled(point);
    return;
  }
  check_view(point);
  if (options_.blobs && listed_.contains(point)) {
    FakeTrainer of_blobs(world_, kTrains);
    ASSERT_TRUE(of_blobs.connect());
    check_blobs(of_blobs, point, /*spoiled=*/false);
    of_blobs.die();
  }
  if (!complete_at(point)) return;
  FakeTrainer reader(world_, kTrains);
  ASSERT_TRUE(reader.connect());
  fb::OpenRestoreT request = whole_view(point);
  request.exact = true;
  const auto restored = reader.restore(request);
  ASSERT_EQ(restored.error, "") << "lineage " << point.first << " step " << point.second;
  for (size_t want = 0; want < request.wants.size(); ++want) {
    const ckpt::UnitId unit = request.wants[want].unit();
    const auto version = version_at(unit, point);
    EXPECT_EQ(restored.steps[want], version->second);
    check_bytes(unit, *version, restored.bytes[want]);
  }
  reader.die();
}

// A damaged commit restores to the right bytes of a version that is named, or fails.
void Simulation::check_spoiled(const Point& point) {
  FakeTrainer reader(world_, kTrains);
  ASSERT_TRUE(reader.connect());
  if (options_.blobs) check_blobs(reader, point, /*spoiled=*/true);
  fb::OpenRestoreT request = whole_view(point);
  request.exact = chance(50);
  const auto restored = reader.restore(request);
  reader.die();
  if (!restored.error.empty()) return;
  for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
    const ckpt::Step step = restored.steps[unit];
    EXPECT_TRUE(step == point.second || (!request.exact && !restored.notes[unit].empty()));
    std::set<Content> matching;
    for (const auto& [begun, attempts] : begun_) {
      if (begun.second != step) continue;
      for (const Known& known : attempts) {
        const Content content = content_of(unit, step, known.salt);
        if (same_bytes(unit, content, restored.bytes[unit])) matching.insert(content);
      }
    }
    EXPECT_EQ(matching.size(), 1u)
        << "lineage " << point.first << " step " << point.second << " unit " << unit
        << " as of step " << step << ": bytes of no snapshot";
  }
}

}  // namespace ckptd::testing
