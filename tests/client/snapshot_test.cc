// Snapshots as the daemon sees them: the bytes in the slabs, the seals, and the messages to a
// second daemon after the first was lost.
#include <atomic>

#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

TEST_F(SnapshotTest, SlabsHoldEveryByteAndZeroGaps) {
  start();
  open({100, 70'000, 3, 600'000, 65'536, 1});
  // Bytes of an earlier use of the arena must not remain in gaps.
  uint64_t arena_bytes = 0;
  void* arena = ckpt_arena(session_->handle(), &arena_bytes);
  std::memset(arena, 0xee, arena_bytes);
  Snapshot snapshot = begin();
  for (uint32_t unit = 0; unit < data_.size(); ++unit) write(snapshot, unit);
  ASSERT_OK(snapshot.end());
  const fb::MessageT begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1)[0];
  const uint32_t wanted = begun.body.AsBeginSnapshot()->slabs_wanted;
  expect_payload(seals(wanted));
  EXPECT_EQ(snapshot.info().bytes, 100u + 70'000 + 3 + 600'000 + 65'536 + 1);
  EXPECT_GT(snapshot.info().stall_ns, 0u);
  EXPECT_GE(snapshot.info().stall_ns, snapshot.info().wait_ns);
}

TEST_F(SnapshotTest, InterleavedUnitsGiveSameBytes) {
  start();
  open({300'000, 200'000, 50});
  Snapshot snapshot = begin();
  // Pieces of odd sizes from three units in random order: each piece is a new fragment, or extends
  // the last one.
  uint64_t at[3] = {0, 0, 0};
  std::mt19937_64 random(3);
  while (at[0] < 300'000 || at[1] < 200'000 || at[2] < 50) {
    const auto unit = static_cast<uint32_t>(random() % 3);
    const uint64_t piece = std::min<uint64_t>(1 + random() % 40'000, data_[unit].size() - at[unit]);
    ASSERT_OK(snapshot.write(unit, at[unit], data_[unit].data() + at[unit], piece));
    at[unit] += piece;
  }
  ASSERT_OK(snapshot.end());
  daemon_->wait_for(fb::MessageBody::SealSlab, 2);
  session_.reset();  // everything was sent
  expect_payload(seals(2));
}

TEST_F(SnapshotTest, MemoryUnitsHaveTheirOwnSlabs) {
  start();
  open({100'000, 50'000, 300, 200'000});
  plan_.memory_units = {3, 1};
  Snapshot snapshot = begin();
  const fb::MessageT begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1)[0];
  const fb::BeginSnapshotT& body = *begun.body.AsBeginSnapshot();
  EXPECT_EQ(body.memory_units, (std::vector<UnitId>{1, 3}));
  EXPECT_EQ(body.slabs_wanted, 2u);
  for (uint32_t unit = 0; unit < data_.size(); ++unit) write(snapshot, unit);  // in turns
  ASSERT_OK(snapshot.end());
  const auto sealed = seals(2);
  for (const fb::SealSlabT& seal : sealed) {
    ASSERT_EQ(seal.fragments.size(), 2u);
    EXPECT_EQ(seal.fragments[0].unit() % 2, seal.fragments[1].unit() % 2);
  }
  expect_payload(sealed);
}

TEST_F(SnapshotTest, WritesOutsideThePlanAreRefusedAndNamed) {
  start();
  open({1000, 1000});
  Snapshot snapshot = begin();
  const auto gap = snapshot.write(0, 10, data_[0].data(), 10);
  ASSERT_FALSE(gap);
  EXPECT_NE(gap.error().message.find("unit unit0"), std::string::npos) << gap.error().message;
  EXPECT_FALSE(snapshot.write(0, 0, data_[0].data(), 1001));
  EXPECT_FALSE(snapshot.write(7, 0, data_[0].data(), 1));
  EXPECT_FALSE(snapshot.write(0, UINT64_MAX, data_[0].data(), 2));
  write(snapshot, 0);
  EXPECT_FALSE(snapshot.write(0, 0, data_[0].data(), 1));
  const auto early = snapshot.end();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().status, CKPT_E_FAILED_PRECONDITION);
  EXPECT_NE(early.error().message.find("unit1"), std::string::npos);
  write(snapshot, 1);
  ASSERT_OK(snapshot.end());
}

TEST_F(SnapshotTest, InvalidPlansAreRefusedBeforeBeginIsSent) {
  start();
  open({1000});
  const auto refused = [&](const SnapshotOptions& plan) {
    const auto begun = session_->begin(plan);
    return !begun.ok() && begun.error().status == CKPT_E_INVALID_ARGUMENT;
  };
  SnapshotOptions plan = plan_;
  plan.fragments = {{0, 0, 500, 501}};
  EXPECT_TRUE(refused(plan));
  plan.fragments = {{1, 0, 0, 1000}};
  EXPECT_TRUE(refused(plan));
  plan.fragments = {{0, 1, 0, 1}};
  EXPECT_TRUE(refused(plan));
  plan = plan_;
  plan.units = {0, 9};
  EXPECT_TRUE(refused(plan));
  plan = plan_;
  plan.memory_units = {0};  // nothing would be durable
  EXPECT_TRUE(refused(plan));
  plan.memory_units = {1};
  EXPECT_TRUE(refused(plan));
  plan.memory_units.clear();
  plan.expert_tokens = {{3, 0, 900}, {3, 1, 800}};
  plan.expert_lost = {5};  // whose?
  EXPECT_TRUE(refused(plan));
  const auto types = daemon_->types();
  EXPECT_EQ(std::count(types.begin(), types.end(), fb::MessageBody::BeginSnapshot), 0);
}

TEST_F(SnapshotTest, TokensAndPoliciesAreSentAndAlarmsArrive) {
  start({}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::SealSlab) return false;
    fb::SnapshotStateT state;
    state.epoch = 1;
    state.step = 1200;
    state.level = fb::SnapshotLevel::Durable;
    state.alarms = "unit unit0: 3 of its floats are NaN or infinite";
    peer.send(std::move(state));
    return true;
  });
  alarms_ = CKPT_ALARMS_REFUSE;
  open({1000});
  plan_.expert_tokens = {{3, 0, 900}, {3, 1, uint64_t{1} << 40}};
  plan_.expert_lost = {0, 30};
  plan_.staleness_max = 40;
  Snapshot snapshot = begin();
  const fb::MessageT hello = daemon_->wait_for(fb::MessageBody::Hello, 1)[0];
  EXPECT_EQ(hello.body.AsHello()->alarms, fb::AlarmPolicy::Refuse);
  const fb::MessageT begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1)[0];
  const fb::BeginSnapshotT& body = *begun.body.AsBeginSnapshot();
  EXPECT_EQ(body.staleness_max, 40u);
  ASSERT_EQ(body.expert_tokens.size(), 2u);
  EXPECT_EQ(body.expert_tokens[1].layer(), 3u);
  EXPECT_EQ(body.expert_tokens[1].expert(), 1u);
  EXPECT_EQ(body.expert_tokens[1].tokens(), uint64_t{1} << 40);
  ASSERT_EQ(body.expert_lost.size(), 1u) << "who lost nothing takes no room";
  EXPECT_EQ(body.expert_lost[0].layer(), 3u);
  EXPECT_EQ(body.expert_lost[0].expert(), 1u);
  EXPECT_EQ(body.expert_lost[0].tokens(), 30u);
  EXPECT_EQ(snapshot.info().alarms, "");
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  ASSERT_OK(snapshot.wait(CKPT_LEVEL_DURABLE, 60'000));
  EXPECT_EQ(snapshot.info().alarms, "unit unit0: 3 of its floats are NaN or infinite");
}

// The daemon answers late: begin() returns before the answer, and the first write() waits for it.
TEST_F(SnapshotTest, BeginsWithoutWaitingForTheDaemon) {
  std::atomic<uint64_t> held = 0;  // the request that waits for its answer
  start({}, [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (const fb::BeginSnapshotT* begin = message.body.AsBeginSnapshot()) {
      held = begin->request;
      return true;
    }
    if (message.body.type != fb::MessageBody::KvSet || held == 0) return false;
    fb::SlabsLeasedT leased;
    leased.request = held;
    leased.step = 1200;
    leased.slabs = {5};
    peer.send(std::move(leased));
    return false;
  });
  open({1000});
  plan_.no_wait = true;
  Snapshot snapshot = begin();
  ASSERT_OK(session_->kv_set("let", "go"));
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  EXPECT_EQ(seals(1)[0].slab, 5u);
}

TEST_F(SnapshotTest, FirstWriteReturnsRefusalOfBegin) {
  start({}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const fb::BeginSnapshotT* begin = message.body.AsBeginSnapshot();
    if (begin == nullptr) return false;
    fb::ErrorReplyT refusal;
    refusal.request = begin->request;
    refusal.code = static_cast<int>(ErrorCode::kAlreadyExists);
    refusal.message = "run tiny step 1200: lineage 1 has a commit of this step already";
    refusal.detail = CKPT_DETAIL_DISK_FULL;
    peer.send(std::move(refusal));
    return true;
  });
  open({1000});
  plan_.no_wait = true;
  Snapshot snapshot = begin();
  const auto written = snapshot.write(0, 0, data_[0].data(), data_[0].size());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().status, CKPT_E_ABORTED);
  EXPECT_NE(written.error().message.find("has a commit of this step already"), std::string::npos)
      << written.error().message;
  EXPECT_EQ(written.error().detail, CKPT_DETAIL_DISK_FULL);
  EXPECT_EQ(snapshot.info().detail, CKPT_DETAIL_DISK_FULL);
}

TEST_F(SnapshotTest, ReconnectRepeatsUnansweredBegin) {
  start({}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::BeginSnapshot) return false;
    peer.hang_up();
    return true;
  });
  open({1000});
  plan_.no_wait = true;
  Snapshot snapshot = begin();
  write(snapshot, 0);  // leases from the next daemon
  ASSERT_OK(snapshot.end());
  const fb::MessageT reopened = daemon_->wait_for(fb::MessageBody::ReopenSnapshot, 1)[0];
  EXPECT_EQ(reopened.body.AsReopenSnapshot()->begin->step, 1200u);
  EXPECT_TRUE(reopened.body.AsReopenSnapshot()->leased.empty());
  EXPECT_EQ(seals(1)[0].payload_bytes, 1000u);
}

TEST_F(SnapshotTest, UnknownPolicyIsRefused) {
  ckpt_open_options options = CKPT_INIT(ckpt_open_options);
  options.socket = socket_.c_str();
  options.run = "tiny";
  const int policy = 4;  // as C would pass it
  std::memcpy(&options.alarms, &policy, sizeof policy);
  ckpt_session* session = nullptr;
  char message[256] = "";
  EXPECT_EQ(ckpt_open(&options, &session, message, sizeof message), CKPT_E_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "alarms 4: no such policy");
}

TEST_F(SnapshotTest, LevelsAndTheReasonOfAFailureArrive) {
  start({}, [this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type == fb::MessageBody::SealSlab) {
      const bool first = message.body.AsSealSlab()->attempt == 0;
      announce(peer, fb::SnapshotLevel::Staged);
      announce(peer, first ? fb::SnapshotLevel::Durable : fb::SnapshotLevel::Failed);
    }
    return false;
  });
  open({1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  ASSERT_OK(snapshot.wait(CKPT_LEVEL_DURABLE, 20'000));
  EXPECT_EQ(snapshot.info().level, CKPT_LEVEL_DURABLE);
  EXPECT_GT(snapshot.info().durable_ns, 0u);
}

TEST_F(SnapshotTest, FailureNamesItsReasonInEveryCall) {
  start({}, [this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type == fb::MessageBody::SealSlab) announce(peer, fb::SnapshotLevel::Failed);
    return false;
  });
  open({1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  const auto failed = snapshot.wait(CKPT_LEVEL_STAGED, 20'000);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().status, CKPT_E_ABORTED);
  EXPECT_NE(failed.error().message.find("changed after its seal"), std::string::npos);
  EXPECT_EQ(snapshot.info().failure, CKPT_E_CORRUPT);
  EXPECT_EQ(snapshot.info().reason, "slab 0 was changed after its seal");
}

TEST_F(SnapshotTest, FailureNamesSnapshotOnce) {
  start({}, [this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type == fb::MessageBody::SealSlab) {
      announce(peer, fb::SnapshotLevel::Failed, "run tiny step 1200: 7 bytes of disk are needed");
    }
    return false;
  });
  open({1000});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  const auto failed = snapshot.wait(CKPT_LEVEL_STAGED, 20'000);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message,
            "run tiny step 1200: the snapshot failed: 7 bytes of disk are needed");
}

TEST_F(SnapshotTest, ReconnectResendsBeginAndSeals) {
  start();
  open({kSlabBytes, kSlabBytes, kSlabBytes});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.write(1, 0, data_[1].data(), 1000));  // seals the first slab, fills the second
  seals(1);
  daemon_.reset();
  start();
  ASSERT_OK(snapshot.write(1, 1000, data_[1].data() + 1000, kSlabBytes - 1000));
  write(snapshot, 2);
  ASSERT_OK(snapshot.end());
  ASSERT_OK(session_->kv_set("all", "sent"));  // reconnects if nothing did so far
  EXPECT_EQ(daemon_->types().at(2), fb::MessageBody::RejoinEpoch);
  const auto reopened = daemon_->wait_for(fb::MessageBody::ReopenSnapshot, 1);
  const fb::ReopenSnapshotT& reopen = *reopened[0].body.AsReopenSnapshot();
  EXPECT_EQ(reopen.begin->step, 1200u);
  EXPECT_EQ(reopen.begin->fragments.size(), 3u);
  const auto sealed = seals(3);
  EXPECT_EQ(sealed[0].slab, 0u);
  expect_payload(sealed);
}

TEST_F(SnapshotTest, UnadoptedArenaFailsSnapshotButStaysMapped) {
  start();
  open({1000});
  uint64_t bytes = 0;
  auto* arena = static_cast<volatile char*>(ckpt_arena(session_->handle(), &bytes));
  Snapshot snapshot = begin();
  write(snapshot, 0);
  daemon_.reset();
  start({.adopt = false});
  const auto failed = snapshot.wait(CKPT_LEVEL_DURABLE, 20'000);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().status, CKPT_E_ABORTED);
  EXPECT_NE(failed.error().message.find("did not take the arena back"), std::string::npos);
  EXPECT_NE(ckpt_arena(session_->handle(), &bytes), arena);
  arena[0] = 1;  // still mapped: the trainer had pinned it
  // The next snapshot works in the new arena.
  plan_.attempt = 1;
  Snapshot again = begin();
  write(again, 0);
  ASSERT_OK(again.end());
  expect_payload(seals(1));
}

// An arena of one slab: the slab is written out and leased again while the snapshot is filled.
TEST_F(SnapshotTest, ReconnectFailsSnapshotLargerThanArena) {
  const FakeDaemon::Options one_slab{.slab_bytes = kSlabBytes, .slab_count = 1};
  start(one_slab, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const auto* begin = message.body.AsBeginSnapshot();
    if (begin == nullptr && message.body.type != fb::MessageBody::SealSlab) return false;
    fb::SlabsLeasedT leased;
    leased.request = begin != nullptr ? begin->request : 0;
    leased.step = 1200;
    leased.slabs = {0};
    peer.send(std::move(leased));
    return true;
  });
  open({kSlabBytes, kSlabBytes});
  Snapshot snapshot = begin();
  write(snapshot, 0);
  write(snapshot, 1);
  ASSERT_OK(snapshot.end());
  seals(2);
  daemon_.reset();
  start();
  const auto failed = snapshot.wait(CKPT_LEVEL_DURABLE, 20'000);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("smaller than the snapshot"), std::string::npos)
      << failed.error().message;
  daemon_->wait_for(fb::MessageBody::AbortSnapshot, 1);
}

TEST_F(SnapshotTest, OutOfSlabsTimeoutNamesStep) {
  start({}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::BeginSnapshot) return false;
    fb::SlabsLeasedT none;
    none.request = message.body.AsBeginSnapshot()->request;
    none.step = message.body.AsBeginSnapshot()->step;
    peer.send(std::move(none));
    return true;
  });
  open({1000});
  plan_.timeout_ms = 20;
  Snapshot snapshot = begin();
  const auto full = snapshot.write(0, 0, data_[0].data(), 1000);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().status, CKPT_E_RESOURCE_EXHAUSTED);
  EXPECT_NE(full.error().message.find("step 1200"), std::string::npos);
  EXPECT_GT(snapshot.info().wait_ns, 0u);
}

TEST_F(SnapshotTest, HandleDroppedBeforeEndIsAborted) {
  start();
  open({1000});
  { Snapshot snapshot = begin(); }
  daemon_->wait_for(fb::MessageBody::AbortSnapshot, 1);
}

TEST_F(SnapshotTest, HandlesMayOutliveTheirSession) {
  start();
  open({1000});
  Snapshot snapshot = begin();
  session_.reset();
  daemon_->wait_for(fb::MessageBody::AbortSnapshot, 1);
  EXPECT_EQ(snapshot.info().bytes, 0u);
}

}  // namespace
}  // namespace ckpt::test
