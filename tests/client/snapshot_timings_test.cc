// Where the time of a snapshot goes, as libckpt measures it: each part grows in its own call, and
// the stall is the time in all calls, of failed snapshots too.
#include "formats/wire/snapshot_timings.h"

#include <array>
#include <cstddef>

#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

using TimingsTest = SnapshotTest;

constexpr uint64_t kHourNs = 3'600'000'000'000;

uint64_t sum_of_client_parts(const client::SnapshotTimings& timings) {
  return timings.plan_ns + timings.begin_ns + timings.slab_wait_ns + timings.copy_ns +
         timings.seal_ns;
}

FakeDaemon::Override no_slabs() {
  return [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::BeginSnapshot) return false;
    fb::SlabsLeasedT none;
    none.request = message.body.AsBeginSnapshot()->request;
    none.step = message.body.AsBeginSnapshot()->step;
    peer.send(std::move(none));
    return true;
  };
}

// Announces the snapshot with these timings when its only slab was sealed.
FakeDaemon::Override announced(fb::SnapshotLevel level, const SnapshotTimings& timings) {
  return [level, timings](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::SealSlab) return false;
    fb::SnapshotStateT state;
    state.epoch = 1;
    state.step = 1200;
    state.level = level;
    state.timings = wire::to_fb(timings);
    peer.send(std::move(state));
    return true;
  };
}

TEST_F(TimingsTest, PartsGrowInTheirOwnCalls) {
  start();
  open({1000});
  Snapshot snapshot = begin();
  const client::SnapshotTimings begun = snapshot.info().timings;
  EXPECT_GT(begun.plan_ns, 0u);
  EXPECT_GT(begun.begin_ns, 0u);
  EXPECT_EQ(begun.slab_wait_ns + begun.copy_ns + begun.seal_ns, 0u);

  write(snapshot, 0);
  const client::SnapshotTimings written = snapshot.info().timings;
  EXPECT_EQ(written.plan_ns, begun.plan_ns);
  EXPECT_EQ(written.begin_ns, begun.begin_ns);
  EXPECT_GT(written.slab_wait_ns, 0u);
  EXPECT_GT(written.copy_ns, 0u);
  EXPECT_EQ(written.seal_ns, 0u);

  ASSERT_OK(snapshot.end());
  const client::SnapshotInfo ended = snapshot.info();
  EXPECT_EQ(ended.timings.slab_wait_ns, written.slab_wait_ns);
  EXPECT_EQ(ended.timings.copy_ns, written.copy_ns);
  EXPECT_GT(ended.timings.seal_ns, 0u);
  EXPECT_LE(sum_of_client_parts(ended.timings), ended.stall_ns);
  EXPECT_EQ(ended.timings.write_ns + ended.timings.sync_ns + ended.timings.journal_ns, 0u);
}

TEST_F(TimingsTest, CallersPlanCountsInPlanAndStall) {
  start();
  open({1000});
  plan_.plan_ns = kHourNs;
  Snapshot snapshot = begin();
  EXPECT_GT(snapshot.info().timings.plan_ns, kHourNs);
  EXPECT_GT(snapshot.info().stall_ns, snapshot.info().timings.plan_ns);
}

TEST_F(TimingsTest, CopyTimeEndsWithLastPlace) {
  start();
  open({1000, 500});
  Snapshot snapshot = begin();
  std::array<client::Place, 2> places{};
  for (const uint32_t unit : {0u, 1u}) {
    const auto place = snapshot.reserve(unit, 0, data_[unit].size());
    ASSERT_OK(place);
    places[unit] = *place;
    std::memcpy(place->data, data_[unit].data(), place->length);
  }
  const auto fill = [&](uint32_t unit) {
    const auto bytes = std::as_bytes(std::span(data_[unit]));
    ASSERT_OK(snapshot.filled(places[unit].id, base::crc32c(bytes)));
  };
  fill(0);
  EXPECT_EQ(snapshot.info().timings.copy_ns, 0u);
  fill(1);
  const uint64_t copied_ns = snapshot.info().timings.copy_ns;
  EXPECT_GT(copied_ns, 0u);
  ASSERT_OK(snapshot.end());
  EXPECT_EQ(snapshot.info().timings.copy_ns, copied_ns);
}

TEST_F(TimingsTest, LastSealCarriesTimingsOfRank) {
  start();
  open({kSlabBytes, 1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  write(snapshot, 1);
  ASSERT_OK(snapshot.end());
  const SnapshotTimings sent = wire::from_fb(seals(2).back().timings);
  const client::SnapshotTimings known = snapshot.info().timings;
  EXPECT_EQ(sent.plan_ns, known.plan_ns);
  EXPECT_EQ(sent.begin_ns, known.begin_ns);
  EXPECT_EQ(sent.slab_wait_ns, known.slab_wait_ns);
  EXPECT_EQ(sent.copy_ns, known.copy_ns);
  EXPECT_GT(sent.seal_ns, 0u);
  EXPECT_LE(sent.seal_ns, known.seal_ns) << "the sending of the seal itself";
  EXPECT_EQ(sent.write_ns + sent.sync_ns + sent.journal_ns, 0u);
}

TEST_F(TimingsTest, AnswerCarriesTimingsOfDaemon) {
  start({}, announced(fb::SnapshotLevel::Durable, {.plan_ns = 4 * kHourNs,
                                                   .copy_ns = 5 * kHourNs,
                                                   .write_ns = 7,
                                                   .sync_ns = 8,
                                                   .journal_ns = 9}));
  open({1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  ASSERT_OK(snapshot.wait(CKPT_LEVEL_DURABLE, 20'000));
  const client::SnapshotTimings timings = snapshot.info().timings;
  EXPECT_EQ(timings.write_ns, 7u);
  EXPECT_EQ(timings.sync_ns, 8u);
  EXPECT_EQ(timings.journal_ns, 9u);
  EXPECT_LT(timings.plan_ns, kHourNs) << "of this rank, not of the slowest one";
  EXPECT_LT(timings.copy_ns, kHourNs);
}

TEST_F(TimingsTest, OlderDaemonReportsNoTimings) {
  start({}, announced(fb::SnapshotLevel::Durable, {}));
  open({1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  ASSERT_OK(snapshot.wait(CKPT_LEVEL_DURABLE, 20'000));
  const client::SnapshotTimings timings = snapshot.info().timings;
  EXPECT_EQ(timings.write_ns + timings.sync_ns + timings.journal_ns, 0u);
  EXPECT_GT(timings.copy_ns, 0u);
}

TEST_F(TimingsTest, FailedWaitForSlabsIsStall) {
  start({}, no_slabs());
  open({1000});
  plan_.timeout_ms = 20;
  Snapshot snapshot = begin();
  ASSERT_FALSE(snapshot.write(0, 0, data_[0].data(), 1000));
  const client::SnapshotInfo info = snapshot.info();
  EXPECT_GT(info.timings.slab_wait_ns, 0u);
  EXPECT_GE(info.stall_ns, sum_of_client_parts(info.timings));
}

TEST_F(TimingsTest, WaitIsStallAlsoIfItFails) {
  start({}, announced(fb::SnapshotLevel::Failed, {}));
  open({1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  const uint64_t before_ns = snapshot.info().stall_ns;
  ASSERT_FALSE(snapshot.wait(CKPT_LEVEL_DURABLE, 20'000));
  EXPECT_GT(snapshot.info().stall_ns, before_ns);
}

// A program that was compiled with a header without detail and timings.
TEST_F(TimingsTest, OlderCallersInfoIsNotOverrun) {
  start();
  open({1000});
  const Snapshot snapshot = begin();
  constexpr size_t kOldSize = offsetof(ckpt_snapshot_info, detail);
  static_assert(kOldSize == offsetof(ckpt_snapshot_info, alarms) + sizeof(const char*));
  std::array<unsigned char, sizeof(ckpt_snapshot_info)> memory{};
  memory.fill(0xee);
  ckpt_snapshot_info info{};
  info.struct_size = kOldSize;
  std::memcpy(memory.data(), &info, sizeof info.struct_size);
  std::memcpy(&info, memory.data(), sizeof info);
  ASSERT_EQ(ckpt_snapshot_query(snapshot.handle(), &info), CKPT_OK);
  EXPECT_GT(info.stall_ns, 0u);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&info);
  EXPECT_TRUE(std::all_of(bytes + kOldSize, bytes + sizeof info,
                          [](unsigned char byte) { return byte == 0xee; }));
}

TEST_F(TimingsTest, OlderCallersOptionsHaveNoPlanTime) {
  start();
  open({1000});
  ckpt_snapshot_options options{};
  options.struct_size = offsetof(ckpt_snapshot_options, plan_ns);
  options.step = 1200;
  const uint32_t unit = 0;
  options.units = &unit;
  options.unit_count = 1;
  options.fragments = plan_.fragments.data();
  options.fragment_count = 1;
  options.plan_ns = kHourNs;  // beyond what the caller knows: other memory
  ckpt_snapshot* snapshot = nullptr;
  ASSERT_EQ(ckpt_snapshot_begin(session_->handle(), &options, &snapshot), CKPT_OK);
  ckpt_snapshot_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(ckpt_snapshot_query(snapshot, &info), CKPT_OK);
  EXPECT_LT(info.plan_ns, kHourNs);
  ckpt_snapshot_free(snapshot);
}

}  // namespace
}  // namespace ckpt::test
