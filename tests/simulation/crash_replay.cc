#include "tests/simulation/crash_replay.h"

#include <algorithm>

namespace ckptd::testing {

namespace {

const FakeTrainer::Options kTrainer = {.arena_bytes = 512u << 10, .slab_bytes = 64u << 10};
const FakeTrainer::Options kRoot = {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control};
const World::Options kWorld = {.segment_bytes = 256u << 10};

}  // namespace

CrashReplay::CrashReplay(uint64_t seed, Kind kind)
    : seed_(seed),
      kind_(kind),
      random_(seed),
      world_({.seed = seed,
              .segment_bytes = kWorld.segment_bytes,
              .scrub_bytes_per_second = kind == Kind::kDeltas ? 1u << 30 : 0,
              .codec = kind == Kind::kDeltas ? CodecChoice::kDelta : CodecChoice::kNone}),
      disk_(world_.disk()),
      job_(world_, 2, kTrainer) {
  const uint64_t bytes[] = {1'000, 5'000, 20'000, 70'000};
  for (size_t unit = 0; unit < job_.model.size(); ++unit) job_.model[unit].bytes = bytes[unit];
  record();
}

std::byte CrashReplay::byte_of(ckpt::UnitId unit, ckpt::Step step, uint64_t offset) const {
  return state_byte(unit, kind_ == Kind::kDeltas && offset % 61 != 0 ? 0 : step, 0, offset);
}

void CrashReplay::join(fb::ResumeMode resume) {
  job_.start(resume);
  for (auto& rank : job_.ranks) {
    rank->byte_at = [this](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
      return byte_of(unit, step, offset);
    };
  }
}

void CrashReplay::record() {
  world_.set_door(&disk_);
  world_.set_on_send([this](ckpt::SessionId, const fb::MessageT& message) {
    const auto* state = message.body.AsSnapshotState();
    if (state == nullptr || state->level != fb::SnapshotLevel::Durable) return;
    announced_at_.try_emplace(state->step, disk_.moments());
  });
  ASSERT_TRUE(world_.start().ok());
  join(fb::ResumeMode::Start);
  save({{1, job_.all_units()}, {2, {0, 1}}});
  world_.run();
  save({{3, {0, 2}}, {4, {0, 3}}});
  world_.stop();
  ASSERT_TRUE(world_.start().ok());
  join(fb::ResumeMode::Continue);
  save({{5, {0, 1, 3}}});
  world_.run();
  prune();
  save({{6, job_.all_units()}});
  world_.run();
  expect_kind();
  world_.stop();
  for (const auto& [step, units] : units_) ASSERT_TRUE(announced_at_.contains(step));
  world_.set_on_send({});
}

void CrashReplay::expect_kind() {
  const std::string metrics = world_.daemon().metrics_text();
  const auto none = [&metrics](std::string_view metric) {
    return metrics.find(fmt::format("\n{} 0\n", metric)) != std::string::npos;
  };
  ASSERT_EQ(none("ckptd_fragment_bytes_total{codec=\"delta\"}"), kind_ != Kind::kDeltas);
}

// Begins all snapshots, and fills them one after the other. Their unfinished work goes on during
// the next events.
void CrashReplay::save(const std::map<ckpt::Step, std::vector<ckpt::UnitId>>& snapshots) {
  for (const auto& [step, units] : snapshots) {
    units_[step] = units;
    lineages_[step] = job_.ranks[0]->epoch().lineage;
    for (auto& rank : job_.ranks) rank->begin(step, job_.plan(units));
  }
  world_.run();
  for (const auto& [step, units] : snapshots) {
    job_.fill(step);
    for (uint64_t polls = random_() % 8; polls > 0; --polls) world_.daemon().poll();
  }
}

void CrashReplay::prune() {
  FakeTrainer root(world_, kRoot);
  ASSERT_TRUE(root.connect());
  prune_asked_ = disk_.moments();
  const auto reply = root.query("prune", R"({"target": "tiny", "rules": {"last": 1}})");
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  prune_answered_ = disk_.moments();  // the answer came a little earlier
  const auto document = nlohmann::json::parse(reply.json);
  for (const auto& removed : document.at("removed")) removed_.emplace(removed.at("step"));
  ASSERT_GE(removed_.size(), 2u);
  root.die();
}

bool CrashReplay::announced(ckpt::Step step, size_t cut) const {
  const auto found = announced_at_.find(step);
  return found != announced_at_.end() && found->second <= cut;
}

std::vector<RecordingDisk::Choice> CrashReplay::choices(size_t cut) {
  const std::vector<size_t> uncertain = disk_.uncertain(cut);
  const RecordingDisk::Choice none{.kept = std::vector<bool>(disk_.changes()),
                                   .torn = std::vector<bool>(disk_.changes()),
                                   .seed = random_()};
  RecordingDisk::Choice all = none;
  for (const size_t number : uncertain) all.kept[number] = true;
  std::vector<RecordingDisk::Choice> choices = {none, all};
  choices.reserve(2 * uncertain.size() + 4);
  for (const size_t number : uncertain) {
    choices.push_back(none);
    choices.back().kept[number] = true;
    choices.push_back(all);
    choices.back().kept[number] = false;
  }
  for (int more = uncertain.empty() ? 0 : 2; more > 0; --more) {
    choices.push_back(none);
    choices.back().seed = random_();
    for (const size_t number : uncertain) {
      choices.back().kept[number] = random_() % 3 != 0;
      choices.back().torn[number] = random_() % 2 == 0;
    }
  }
  return choices;
}

std::string CrashReplay::violation() {
  size_t announcements = 0;
  for (size_t cut = 0; cut <= disk_.moments(); ++cut) {
    // After a further announcement the same disk must show more. Until then it is opened once.
    size_t announcements_now = (prune_asked_ <= cut ? 1 : 0) + (prune_answered_ <= cut ? 1 : 0);
    for (const auto& [step, moment] : announced_at_) announcements_now += moment <= cut ? 1 : 0;
    if (announcements_now != announcements) seen_.clear();
    announcements = announcements_now;
    for (const RecordingDisk::Choice& choice : choices(cut)) {
      std::vector<bool> there = choice.kept;
      const std::vector<size_t> open = disk_.uncertain(cut);
      for (size_t number = 0; number < there.size(); ++number) {
        const bool uncertain = std::binary_search(open.begin(), open.end(), number);
        if (!uncertain && disk_.began_before(number, cut)) there[number] = true;
      }
      there.insert(there.end(), choice.torn.begin(), choice.torn.end());
      if (!seen_.insert(std::move(there)).second) continue;
      ++disks_;
      const std::string wrong = check(cut, choice);
      if (!wrong.empty()) return fmt::format("seed {} cut {}: {}", seed_, cut, wrong);
    }
  }
  return {};
}

std::string CrashReplay::check(size_t cut, const RecordingDisk::Choice& choice) const {
  World world(kWorld);
  world.set_disk(disk_.image(cut, choice));
  const Status started = world.start();
  if (!started.ok()) return "the store cannot be opened: " + started.error().message;
  std::set<ckpt::Step> listed;
  std::string wrong = check_listed(world, cut, &listed);
  if (wrong.empty()) wrong = check_restores(world, cut, listed);
  return wrong;
}

// The log has every announced commit and no removed one, and verify finds no damage.
std::string CrashReplay::check_listed(World& world, size_t cut,
                                      std::set<ckpt::Step>* listed) const {
  FakeTrainer root(world, kRoot);
  if (!root.connect()) return "root is not let in";
  const auto log = root.query("log", R"({"target": "tiny"})");
  if (log.exit_code == 0) {
    for (const auto& commit : nlohmann::json::parse(log.json)) {
      if (commit.at("level") != "durable") return "not durable: " + commit.dump();
      listed->emplace(commit.at("step"));
    }
  }
  for (const auto& [step, units] : units_) {
    const bool may_be_gone = removed_.contains(step) && prune_asked_ <= cut;
    const bool must_be_gone = removed_.contains(step) && prune_answered_ <= cut;
    if (announced(step, cut) && !may_be_gone && !listed->contains(step)) {
      return fmt::format("step {} was announced and is gone", step);
    }
    if (must_be_gone && listed->contains(step)) {
      return fmt::format("step {} was removed and is back", step);
    }
  }
  const auto verified = root.query("verify", "{}");
  if (log.exit_code == 0 && verified.exit_code != 0) return "verify: " + verified.json;
  root.die();
  return {};
}

// Every listed view restores bit for bit.
std::string CrashReplay::check_restores(World& world, size_t cut,
                                        const std::set<ckpt::Step>& listed) const {
  std::set<ckpt::Step> commits = listed;  // and deleted commits whose units other views need
  for (const auto& [step, units] : units_) {
    if (announced(step, cut)) commits.insert(step);
  }
  if (listed.empty()) return {};
  FakeTrainer reader(world, kTrainer);
  if (!reader.connect()) return "a reader is not let in";
  for (const ckpt::Step step : listed) {
    std::string wrong = check_view(reader, step, commits);
    if (!wrong.empty()) return wrong;
  }
  reader.die();
  return {};
}

std::string CrashReplay::check_view(FakeTrainer& reader, ckpt::Step step,
                                    const std::set<ckpt::Step>& commits) const {
  fb::OpenRestoreT request = job_.whole(step);
  request.lineage = lineages_.at(step);
  request.exact = true;
  const auto restored = reader.restore(request);
  // The first commit has all units, so every view is complete unless that commit is missing.
  const bool complete = commits.contains(1);
  if (!complete) return restored.error.empty() ? "a view of nothing was restored" : "";
  if (!restored.error.empty()) return fmt::format("step {}: {}", step, restored.error);
  for (ckpt::UnitId unit = 0; unit < job_.model.size(); ++unit) {
    ckpt::Step version = 0;
    for (const ckpt::Step commit : commits) {
      const auto& units = units_.at(commit);
      const bool has = std::find(units.begin(), units.end(), unit) != units.end();
      if (commit <= step && has) version = commit;
    }
    const auto& bytes = restored.bytes[unit];
    bool same = restored.steps[unit] == version;
    for (uint64_t i = 0; same && i < bytes.size(); ++i) {
      same = bytes[i] == byte_of(unit, version, i);
    }
    if (!same) {
      return fmt::format("step {} unit {}: not the version of step {}", step, unit, version);
    }
  }
  return {};
}

}  // namespace ckptd::testing
