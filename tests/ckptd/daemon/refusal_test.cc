// Refused requests, after which the daemon continues: wrong versions, wrong users, units that
// differ, messages out of order.
#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "formats/wire/frame.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest() : world({}) { EXPECT_TRUE(world.start().ok()); }
  World world;
};

TEST_F(RefusalTest, UnknownProtocolVersionIsRefused) {
  const ckpt::SessionId session = world.connect();
  fb::HelloT hello;
  hello.protocol_version = 99;
  hello.kind = fb::SessionKind::Trainer;
  hello.run = "tiny";
  fb::MessageT message;
  message.body.Set(std::move(hello));
  world.deliver(session, std::move(message));
  EXPECT_THAT(world.inbox(session).disconnected,
              AllOf(HasSubstr("ckptd speaks 2 to 5"), HasSubstr("the client 99")));
}

TEST_F(RefusalTest, ProtocolViolationsDisconnectClient) {
  const ckpt::SessionId session = world.connect();
  fb::MessageT message;
  message.body.Set(fb::JoinGroupT());
  world.deliver(session, std::move(message));
  EXPECT_THAT(world.inbox(session).disconnected, HasSubstr("greeting"));
  FakeTrainer trainer(world, {});
  ASSERT_TRUE(trainer.connect());
  trainer.post(fb::WelcomeT());
  EXPECT_THAT(world.inbox(trainer.session()).disconnected, HasSubstr("Welcome"));
}

TEST_F(RefusalTest, RequestsOutOfOrderAreRefused) {
  FakeTrainer trainer(world, {});
  ASSERT_TRUE(trainer.connect());
  const auto error_after = [&](auto body) {
    trainer.send(std::move(body));
    world.run();
    return trainer.error();
  };
  EXPECT_NE(error_after(fb::JoinGroupT()), "");
  EXPECT_NE(error_after(fb::RejoinEpochT()), "");
  EXPECT_NE(error_after(fb::BeginSnapshotT()), "");
  EXPECT_NE(error_after(fb::LeaseSlabsT()), "");
  EXPECT_NE(error_after(fb::SealSlabT()), "");
  EXPECT_NE(error_after(fb::AbortSnapshotT()), "");
  EXPECT_NE(error_after(fb::KvSetT()), "");
  EXPECT_NE(error_after(fb::KvGetT()), "");
  EXPECT_NE(error_after(fb::CloseRestoreT()), "");
  fb::ReopenSnapshotT reopen;
  reopen.begin = std::make_unique<fb::BeginSnapshotT>();
  EXPECT_NE(error_after(std::move(reopen)), "");
  fb::ReleaseWindowT release;
  release.restore = 77;
  trainer.post(std::move(release));
  EXPECT_EQ(trainer.query("dance", "").exit_code, 2);
  EXPECT_TRUE(trainer.register_units(small_model())) << "the session is as good as before";
}

TEST_F(RefusalTest, DifferingUnitsAreNamed) {
  Job job(world, 1);
  job.start();
  const auto refused = [&](auto change) {
    auto units = small_model();
    change(units);
    FakeTrainer other(world, {});
    EXPECT_TRUE(other.connect());
    EXPECT_FALSE(other.register_units(units));
    const std::string error = other.error();
    other.die();
    return error;
  };
  EXPECT_THAT(refused([](auto& units) { units[2].bytes += 1; }),
              AllOf(HasSubstr("run tiny"), HasSubstr("layers.0.experts.1.weights")));
  EXPECT_THAT(refused([](auto& units) { units.pop_back(); }),
              HasSubstr("layers.0.experts.2.weights is missing"));
  EXPECT_THAT(refused([](auto& units) { units[0].name = "optimizer"; }), HasSubstr("optimizer"));
  EXPECT_THAT(refused([](auto& units) { units[3].name = "trainer"; }), HasSubstr("trainer"));
  EXPECT_NE(refused([](auto& units) { units.clear(); }), "");
}

TEST_F(RefusalTest, ARunBelongsToItsCreator) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  FakeTrainer stranger(world, {.uid = 4242});
  ASSERT_TRUE(stranger.connect());
  EXPECT_FALSE(stranger.register_units(small_model()));
  EXPECT_THAT(stranger.error(), HasSubstr("belongs to user 54321"));
  EXPECT_THAT(stranger.restore(job.whole(5)).error, HasSubstr("belongs to user 54321"));
  EXPECT_EQ(stranger.query("runs", "").json, "[]");
  EXPECT_EQ(stranger.query("log", R"({"target": "tiny"})").exit_code, 3);
}

TEST_F(RefusalTest, MetadataMustBeBoundedJson) {
  FakeTrainer trainer(world, {});
  ASSERT_TRUE(trainer.connect());
  const auto refused = [&](std::string metadata) {
    fb::RegisterUnitsT body;
    body.metadata = std::move(metadata);
    body.units.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(small_model()[0], 0)));
    trainer.send(std::move(body));
    return trainer.error();
  };
  EXPECT_THAT(refused("{ no json"), HasSubstr("not JSON"));
  EXPECT_THAT(refused(std::string(500'000, '[') + std::string(500'000, ']')),
              HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refused(std::string(2u << 20, ' ') + "{}"), HasSubstr("the most is 1048576"));
}

// An error names the refused object, but never repeats megabytes of its name.
TEST_F(RefusalTest, LongTextsAreNotEchoed) {
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  const std::string huge(30u << 20, 'A');
  const auto error_after = [&](auto body) {
    trainer.send(std::move(body));
    world.run();
    const std::string error = trainer.error();
    EXPECT_LE(error.size(), limits::kMessageBytesMax + 3);
    return error;
  };
  fb::OpenRestoreT restore;
  restore.run = huge;
  EXPECT_THAT(error_after(restore), HasSubstr("run AAAA"));
  restore.run = "tiny";
  restore.tag = huge;
  EXPECT_THAT(error_after(restore), HasSubstr("tag AAAA"));
  fb::QueryT query;
  query.verb = huge;
  EXPECT_THAT(error_after(query), HasSubstr("no such question"));
  query.verb = "log";
  query.args = huge;
  EXPECT_THAT(error_after(query), HasSubstr("the most is 65536"));
  const auto reply = trainer.query("log", R"({"\u0001)" + std::string(10'000, 'A') + R"(": 1})");
  EXPECT_THAT(reply.json, AllOf(HasSubstr(R"(unknown argument \\x01AAA)"), HasSubstr("...")));
  EXPECT_LE(reply.json.size(), 300u);
  EXPECT_THAT(trainer.query("log", std::string(60'000, '[')).json, HasSubstr("nested more than"));
  fb::HelloT hello;
  hello.protocol_version = ckpt::wire::kProtocolVersion;
  hello.kind = fb::SessionKind::Trainer;
  hello.run = huge;
  const ckpt::SessionId session = world.connect();
  fb::MessageT message;
  message.body.Set(std::move(hello));
  world.deliver(session, std::move(message));
  EXPECT_LE(world.inbox(session).disconnected.size(), 300u);
}

TEST_F(RefusalTest, MetricsHavePrintableNames) {
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  const auto begin_with = [&](ckpt::Step step, std::string name) {
    fb::BeginSnapshotT body;
    body.epoch = trainer.epoch().epoch;
    body.step = step;
    body.metrics.push_back(std::make_unique<fb::MetricT>());
    body.metrics[0]->name = std::move(name);
    trainer.send(std::move(body));
    return trainer.error();
  };
  EXPECT_THAT(begin_with(1, "lo\nss"), HasSubstr("printable"));
  EXPECT_THAT(begin_with(2, std::string(1u << 20, 'x')), HasSubstr("1 to 128"));
}

TEST_F(RefusalTest, AbortReasonIsTruncated) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  fb::AbortSnapshotT abort;
  abort.epoch = 1;
  abort.step = 5;
  abort.reason = "\x1b[2J" + std::string(30u << 20, 'x');
  job.ranks[0]->send(std::move(abort));
  job.listen();
  for (auto& rank : job.ranks) {
    EXPECT_EQ(rank->snapshot(5).level, fb::SnapshotLevel::Failed);
    EXPECT_THAT(rank->snapshot(5).reason, HasSubstr("rank 0 aborted it: \\x1b[2Jxxx"));
    EXPECT_LE(rank->snapshot(5).reason.size(), 300u);
  }
}

TEST_F(RefusalTest, SealOfUnleasedSlabFailsSnapshot) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  fb::SealSlabT seal;
  seal.epoch = job.ranks[0]->epoch().epoch;
  seal.step = 5;
  seal.slab = 31;
  seal.payload_bytes = 64;
  job.ranks[0]->send(seal);
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("slab 31"));
  job.ranks[1]->listen();
  EXPECT_EQ(job.ranks[1]->snapshot(5).level, fb::SnapshotLevel::Failed);
  job.commit(6);
}

TEST_F(RefusalTest, GarbageInSealFailsSnapshot) {
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  ckpt::Step step = 1;
  const auto refused = [&](auto change) {
    job.begin(step);
    trainer.listen();
    fb::SealSlabT seal;
    seal.epoch = trainer.epoch().epoch;
    seal.step = step;
    seal.slab = trainer.snapshot(step).slabs.front();
    seal.payload_bytes = 1000;
    seal.fragments.emplace_back(0, 0, 0, 1000, 0);
    change(seal);
    trainer.send(seal);
    world.run();
    trainer.listen();
    EXPECT_EQ(trainer.snapshot(step++).level, fb::SnapshotLevel::Failed);
    return trainer.error();
  };
  EXPECT_NE(refused([](auto& seal) { seal.payload_bytes = UINT64_MAX; }), "");
  EXPECT_NE(refused([](auto& seal) { seal.slab = UINT32_MAX; }), "");
  EXPECT_NE(refused([](auto& seal) { seal.fragments[0] = {9, 0, 0, 1000, 0}; }), "");
  EXPECT_NE(refused([](auto& seal) { seal.fragments[0] = {0, 0, UINT64_MAX, 1000, 0}; }), "");
  EXPECT_NE(refused([](auto& seal) { seal.fragments[0] = {0, 0, 0, 1000, UINT64_MAX}; }), "");
  EXPECT_NE(refused([](auto& seal) { seal.fragments.push_back(seal.fragments[0]); }), "");
  EXPECT_NE(refused([](auto& seal) { seal.fragments.clear(); }), "");
  job.commit(step);
}

TEST_F(RefusalTest, DrainingDaemonRefusesNewWork) {
  Job job(world, 1);
  job.start();
  job.begin(5);
  world.daemon().begin_drain();
  EXPECT_FALSE(world.daemon().readiness_answer().ok);
  EXPECT_THAT(world.daemon().readiness_answer().text, HasSubstr("draining"));
  job.ranks[0]->begin(6, job.plan(job.all_units()));
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("shutting down"));
  FakeTrainer late(world, {});
  EXPECT_FALSE(late.connect());
  ASSERT_TRUE(job.ranks[0]->fill(5));
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Durable);
  world.run();
  EXPECT_TRUE(world.daemon().drained());
}

// At the limit of open snapshots further begins wait: at most one of each rank and step, and within
// a limit of memory.
TEST_F(RefusalTest, WaitingBeginsAreBounded) {
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  for (ckpt::Step step = 1; step <= limits::kSnapshotsOpenPerRunMax; ++step) job.begin(step);
  const auto begin = [&](ckpt::Step step, size_t units) {
    fb::BeginSnapshotT body;
    body.epoch = trainer.epoch().epoch;
    body.step = step;
    body.units.resize(units);
    trainer.send(std::move(body));
    return trainer.error();
  };
  const size_t units = limits::kBeginsWaitingBytesMax / sizeof(ckpt::UnitId) / 4;
  EXPECT_EQ(begin(11, units), "");
  EXPECT_THAT(begin(11, units), HasSubstr("step 11: this rank waits to begin this step already"));
  EXPECT_EQ(begin(12, units), "");
  EXPECT_EQ(begin(13, units), "");
  EXPECT_THAT(begin(14, units), HasSubstr("step 14: 4 snapshots of the run are open"));
  EXPECT_EQ(begin(15, 1), "") << "a small one still fits";
}

}  // namespace
}  // namespace ckptd::testing
