// A run that grows, against the real daemon: resumed, forked, killed, and refused.
#include <gmock/gmock.h>

#include <array>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

using client::Session;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kAdapter = 4;  // behind the units of SmallRun

// The state after the growth.
SmallRun grown(uint64_t bytes = 400'000) {
  SmallRun run;
  run.unit_bytes.push_back(bytes);
  return run;
}
client::UnitInfo adapter(uint64_t bytes = 400'000) { return flat_unit("layers.4", bytes); }

client::Outcome<Session> joined(const DaemonProcess& daemon, const client::JoinOptions& join) {
  auto session = open_trainer(daemon, SmallRun());
  if (!session) return session.error();
  if (auto epoch = session->join(join); !epoch) return epoch.error();
  return session;
}
void expect_growth(Session& session, uint64_t bytes = 400'000) {
  const auto numbers = session.grow({adapter(bytes)});
  ASSERT_OK(numbers);
  EXPECT_EQ(numbers->front(), kAdapter);
}

TEST(GrowthDaemon, RestoresGrownUnitWhichOlderViewsLack) {
  DaemonProcess daemon;
  run_ranks(2, [&](uint32_t rank) {
    auto session = joined(daemon, as_rank(rank, 2));
    ASSERT_OK(session);
    ASSERT_OK(save(*session, SmallRun(), 1, rank, 2));
    expect_growth(*session);
    for (uint64_t step = 2; step <= 3; ++step) {
      ASSERT_OK(save(*session, grown(), step, rank, 2));
    }
    ASSERT_OK(session->leave());
  });
  daemon.crash_and_restart();
  run_ranks(3, [&](uint32_t rank) {
    auto session = joined(daemon, as_rank(rank, 3));
    ASSERT_OK(session);
    expect_growth(*session);
    expect_state(*session, grown(), 3);
    std::vector<char> into(10);
    client::RestoreOptions early;
    early.step = 1;
    const auto restored = session->restore(early, {{kAdapter, 0, into.size(), into.data()}});
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().status, CKPT_E_NOT_FOUND) << restored.error().message;
    ASSERT_OK(save(*session, grown(), 4, rank, 3));
    ASSERT_OK(session->leave());
  });
  EXPECT_EQ(daemon.stop(), 0);
}

TEST(GrowthDaemon, KillBeforeTheCommitLeavesNothing) {
  DaemonProcess daemon;
  {
    auto session = joined(daemon, as_rank(0, 1));
    ASSERT_OK(session);
    ASSERT_OK(save(*session, SmallRun(), 1, 0, 1));
    expect_growth(*session);
    const auto plan = grown().plan(2, 1);
    auto snapshot = session->begin(plan);
    ASSERT_OK(snapshot);
    const std::vector<char> bytes = grown().state(2, kAdapter);
    ASSERT_OK(snapshot->write(kAdapter, 0, bytes.data(), bytes.size()));
    daemon.crash_and_restart();
  }
  auto session = joined(daemon, as_rank(0, 1));
  ASSERT_OK(session);
  expect_growth(*session, 50'000);  // not even its size was kept
  ASSERT_OK(save(*session, grown(50'000), 2, 0, 1));
  expect_state(*session, grown(50'000), 2);
}

TEST(GrowthDaemon, SnapshotWithGrowthSurvivesKill) {
  DaemonProcess daemon;
  auto session = joined(daemon, as_rank(0, 1));
  ASSERT_OK(session);
  ASSERT_OK(save(*session, SmallRun(), 1, 0, 1));
  expect_growth(*session);
  const SmallRun run = grown();
  const auto plan = run.plan(2, 1);
  auto snapshot = session->begin(plan);
  ASSERT_OK(snapshot);
  const std::vector<char> first = run.state(2, 0);
  ASSERT_OK(snapshot->write(0, 0, first.data(), 280'000));
  daemon.crash_and_restart();
  ASSERT_OK(snapshot->write(0, 280'000, first.data() + 280'000, 20'000));
  for (uint32_t unit = 1; unit <= kAdapter; ++unit) {
    const std::vector<char> bytes = run.state(2, unit);
    ASSERT_OK(snapshot->write(unit, 0, bytes.data(), bytes.size()));
  }
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  expect_state(*session, run, 2);
}

TEST(GrowthDaemon, ForkBeforeTheGrowthHasItsOwn) {
  DaemonProcess daemon;
  {
    auto session = joined(daemon, as_rank(0, 1));
    ASSERT_OK(session);
    ASSERT_OK(save(*session, SmallRun(), 1, 0, 1));
    expect_growth(*session);
    ASSERT_OK(save(*session, grown(), 2, 0, 1));
    ASSERT_OK(session->leave());
  }
  client::JoinOptions join = as_rank(0, 1);
  join.resume = CKPT_RESUME_AT_STEP;
  join.resume_step = 1;
  auto session = joined(daemon, join);
  ASSERT_OK(session);
  const auto changed = session->grow({adapter(7)});
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().detail, CKPT_DETAIL_UNITS_DIFFER);
  EXPECT_NE(changed.error().message.find("U8 [7] instead of U8 [400000]"), std::string::npos)
      << changed.error().message;
  const auto numbers = session->grow({flat_unit("router", 5)});
  ASSERT_OK(numbers);
  EXPECT_EQ(numbers->front(), 5u);
  client::SnapshotOptions plan = SmallRun().plan(2, 1);
  plan.units.push_back(5);
  plan.fragments.push_back({0, 5, 0, 5});
  auto snapshot = session->begin(plan);
  ASSERT_OK(snapshot);
  ASSERT_OK(write_share(*snapshot, SmallRun(), SmallRun().plan(2, 1), 0));
  ASSERT_OK(snapshot->write(5, 0, "fork.", 5));
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  std::string read(5, ' ');
  client::RestoreOptions latest;
  latest.latest = true;
  ASSERT_OK(session->restore(latest, {{5, 0, read.size(), read.data()}}));
  EXPECT_EQ(read, "fork.");
}

TEST(GrowthDaemon, RankThatDoesNotGrowIsNamed) {
  DaemonProcess daemon;
  std::array<std::string, 2> said;
  run_ranks(2, [&](uint32_t rank) {
    auto session = joined(daemon, as_rank(rank, 2));
    ASSERT_OK(session);
    ASSERT_OK(save(*session, SmallRun(), 1, rank, 2));
    if (rank == 0) expect_growth(*session);
    const auto saved = save(*session, rank == 0 ? grown() : SmallRun(), 2, rank, 2);
    ASSERT_FALSE(saved);
    said[rank] = saved.error().message;
  });
  for (const std::string& message : said) {
    EXPECT_TRUE(message.find("rank 0 grows the run by unit layers.4, rank 1 does not") !=
                std::string::npos)
        << message;
  }
}

// A registration and the growth of a run each fit into a message to ckptd, but not both together:
// a new ckptd cannot be told again, and the call says so instead of waiting for an answer.
TEST(GrowthDaemon, NamesGrowthThatExceedsOneMessage) {
  constexpr size_t kUnits = 200;  // and as many new ones, of 20 MB each
  const auto described = [](const std::string& prefix) {
    std::vector<client::UnitInfo> units;
    for (size_t i = 0; i < kUnits; ++i) {
      const std::string name = prefix + std::to_string(i);
      units.push_back(flat_unit(name, 8));
      units.back().tensors[0].name = name + std::string(100'000, '.');
      units.back().codec = CKPT_CODEC_NONE;
    }
    return units;
  };
  DaemonProcess daemon;
  client::OpenOptions options;
  options.socket = daemon.socket();
  options.run = "wide";
  auto session = client::Session::open(options);
  ASSERT_OK(session);
  ASSERT_OK(session->register_units(described("base")));
  ASSERT_OK(session->join(as_rank(0, 1)));
  ASSERT_OK(session->grow(described("more")));
  SmallRun run;
  run.unit_bytes.assign(2 * kUnits, 8);
  ASSERT_OK(save(*session, run, 1, 0, 1));
  daemon.crash_and_restart();
  client::SnapshotOptions next = run.plan(2, 1);
  next.timeout_ms = 1'000;
  std::string said;
  for (int i = 0; i < 60 && said.find("RegisterUnits") == std::string::npos; ++i) {
    const auto refused = session->begin(next);  // at first, it may only have lost the old daemon
    ASSERT_FALSE(refused);
    said = refused.error().message;
  }
  EXPECT_THAT(said,
              AllOf(HasSubstr("message RegisterUnits: "), HasSubstr(", a frame carries at most")));
}

}  // namespace
}  // namespace ckpt::test
