// Growth as the daemon sees it: it rides on begins until a commit has it.
#include <atomic>

#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

// One registered unit; `adapter` and `router` are grown as units 1 and 2.
class GrowthTest : public SnapshotTest {
 protected:
  // Every sealed slab makes its snapshot durable.
  void start_daemon(FakeDaemon::Options options = {}) {
    start(options, [this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
      if (message.body.type == fb::MessageBody::SealSlab && durable_) {
        announce(peer, fb::SnapshotLevel::Durable);
      }
      return false;
    });
  }
  void grow() {
    const auto numbers = session_->grow({flat_unit("adapter", 50), flat_unit("router", 60)});
    ASSERT_OK(numbers);
    EXPECT_EQ(*numbers, (std::vector<uint32_t>{1, 2}));
  }
  void plan(const std::vector<uint32_t>& units) {
    const std::vector<uint64_t> bytes = {100, 50, 60};
    plan_.units = units;
    plan_.fragments.clear();
    data_.clear();
    for (uint32_t unit = 0; unit < 3; ++unit) data_.push_back(random_bytes(bytes[unit], unit));
    for (const uint32_t unit : units) plan_.fragments.push_back({0, unit, 0, bytes[unit]});
  }
  void save(const std::vector<uint32_t>& units) {
    plan(units);
    Snapshot snapshot = begin();
    for (const uint32_t unit : units) write(snapshot, unit);
    ASSERT_OK(snapshot.end());
    if (durable_) ASSERT_OK(snapshot.wait(CKPT_LEVEL_DURABLE, 60'000));
  }
  std::vector<std::string> told(size_t begin) {
    const auto messages = daemon_->wait_for(fb::MessageBody::BeginSnapshot, begin + 1);
    std::vector<std::string> names;
    for (const auto& grown : messages[begin].body.AsBeginSnapshot()->grown) {
      names.push_back(fmt::format("{} {}", grown->unit->id, grown->unit->name));
    }
    return names;
  }

  std::atomic<bool> durable_ = true;  // the fake daemon has a thread
  const std::vector<std::string> both_ = {"1 adapter", "2 router"};
  const std::vector<std::string> none_;
};

TEST_F(GrowthTest, RidesOnBeginsUntilOneIsDurable) {
  start_daemon();
  open({100});
  grow();
  save({0});
  EXPECT_EQ(told(0), none_);
  save({0, 1, 2});
  EXPECT_EQ(told(1), both_);
  save({0, 1});
  EXPECT_EQ(told(2), none_);
  grow();  // again, with what the run has
  save({0, 2});
  EXPECT_EQ(told(3), both_) << "for codecs and flags";
  save({0, 2});
  EXPECT_EQ(told(4), none_);
}

TEST_F(GrowthTest, FirstSnapshotHoldsAllNewUnits) {
  start_daemon();
  open({100});
  grow();
  plan({0, 1});
  const auto begun = session_->begin(plan_);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().status, CKPT_E_FAILED_PRECONDITION);
  EXPECT_NE(begun.error().message.find("unit router is new in the run"), std::string::npos)
      << begun.error().message;
}

TEST_F(GrowthTest, PartialSnapshotWaitsForTheGrowth) {
  durable_ = false;
  start_daemon();
  open({100});
  grow();
  save({0, 1, 2});
  plan_.timeout_ms = 50;
  plan({0, 1});
  EXPECT_FALSE(session_->begin(plan_));
  durable_ = true;
  plan_.timeout_ms = 60'000;
  plan_.step = 1200;
  plan({0});
  Snapshot other = begin();  // its seal makes the earlier one durable, too
  write(other, 0);
  ASSERT_OK(other.end());
  plan({0, 1});
  Snapshot partial = begin();
  EXPECT_EQ(told(2), none_);
  write(partial, 0);
  write(partial, 1);
  ASSERT_OK(partial.end());
}

TEST_F(GrowthTest, NumbersOfKnownNamesAreFound) {
  start_daemon();
  open({100});
  grow();
  save({0, 1, 2});
  const auto again = session_->grow({flat_unit("router", 60), flat_unit("unit0", 100)});
  ASSERT_OK(again);
  EXPECT_EQ(*again, (std::vector<uint32_t>{2, 0}));
  const auto changed = session_->grow({flat_unit("more", 1), flat_unit("router", 61)});
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().detail, CKPT_DETAIL_UNITS_DIFFER);
  EXPECT_NE(changed.error().message.find("unit router: tensor router.weight: U8 [61] instead of "
                                         "U8 [60]"),
            std::string::npos)
      << changed.error().message;
  const auto next = session_->grow({flat_unit("last", 1)});
  ASSERT_OK(next);
  EXPECT_EQ(next->front(), 3u) << "the refused call has added nothing";
}

TEST_F(GrowthTest, GrowthThatNoSnapshotCarriesIsReplaced) {
  start_daemon();
  open({100});
  grow();
  const auto other = session_->grow({flat_unit("adapter", 51)});
  ASSERT_OK(other);
  EXPECT_EQ(other->front(), 1u);
  grow();
  save({0, 1, 2});
  EXPECT_EQ(told(0), both_);
}

TEST_F(GrowthTest, AbortedGrowthIsReplaced) {
  durable_ = false;
  start_daemon();
  open({100});
  grow();
  plan({0, 1, 2});
  Snapshot first = begin();
  const auto open_one = session_->grow({flat_unit("adapter", 51)});
  EXPECT_EQ(open_one.error().detail, CKPT_DETAIL_UNITS_DIFFER) << "the snapshot carries it";
  ASSERT_OK(first.abort("another shape is wanted"));
  ASSERT_OK(session_->grow({flat_unit("adapter", 51)}));
}

TEST_F(GrowthTest, StructWithoutSizeIsRefused) {
  start_daemon();
  open({100});
  ckpt_grow_options growth{};
  EXPECT_EQ(ckpt_grow(session_->handle(), &growth), CKPT_E_INVALID_ARGUMENT);
}

TEST_F(GrowthTest, EpochTellsTheGrowthOfTheRun) {
  start({}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const auto* join = message.body.AsJoinGroup();
    if (join == nullptr) return false;
    fb::EpochStartedT started;
    started.request = join->request;
    started.epoch = 1;
    started.size = 1;
    started.lineage = 1;
    fb::UnitT unit;
    unit.id = 1;
    unit.name = "router";
    unit.bytes = 60;
    unit.tensors.push_back(std::make_unique<fb::TensorT>());
    unit.tensors.back()->name = "router.weight";
    unit.tensors.back()->dtype = 1;
    unit.tensors.back()->shape = {60};
    started.grown.push_back(std::make_unique<fb::UnitT>(unit));
    peer.send(std::move(started));
    return true;
  });
  open({100});
  const auto numbers = session_->grow({flat_unit("adapter", 50), flat_unit("router", 60)});
  ASSERT_OK(numbers);
  EXPECT_EQ(*numbers, (std::vector<uint32_t>{2, 1}));
}

TEST_F(GrowthTest, GrowthNeedsAnEpoch) {
  start_daemon();
  client::OpenOptions options;
  options.socket = socket_;
  options.run = "tiny";
  auto session = Session::open(options);
  ASSERT_OK(session);
  EXPECT_EQ(session->grow({flat_unit("adapter", 50)}).error().status, CKPT_E_FAILED_PRECONDITION);
}

TEST_F(GrowthTest, OlderDaemonRefusesGrowth) {
  start_daemon({.protocol_version = 4});
  open({100});
  grow();
  plan({0, 1, 2});
  const auto begun = session_->begin(plan_);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().status, CKPT_E_VERSION_MISMATCH);
  EXPECT_EQ(begun.error().message,
            "run tiny step 1200: ckptd speaks protocol 4, and a run that grows needs 5: upgrade "
            "ckptd");
  save({0});
}

TEST_F(GrowthTest, ReconnectToOlderDaemonFailsTheSnapshot) {
  durable_ = false;
  start_daemon();
  open({100});
  grow();
  plan({0, 1, 2});
  Snapshot snapshot = begin();
  for (const uint32_t unit : plan_.units) write(snapshot, unit);
  ASSERT_OK(snapshot.end());
  seals(1);
  daemon_.reset();
  start_daemon({.protocol_version = 4});
  const auto failed = snapshot.wait(CKPT_LEVEL_DURABLE, 20'000);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("a run that grows needs 5: upgrade ckptd"),
            std::string::npos)
      << failed.error().message;
}

TEST_F(GrowthTest, ReconnectTellsCodecsAndFlagsAgain) {
  start_daemon();
  open({100});
  client::UnitInfo adapter = flat_unit("adapter", 50);
  adapter.codec = CKPT_CODEC_ZSTD;
  adapter.flags = CKPT_UNIT_CONSTANT;
  ASSERT_OK(session_->grow({adapter}));
  save({0, 1});
  daemon_.reset();
  start_daemon();
  save({0});
  const auto message = daemon_->wait_for(fb::MessageBody::RegisterUnits, 1)[0];
  const fb::RegisterUnitsT& registered = *message.body.AsRegisterUnits();
  EXPECT_EQ(registered.units.size(), 1u);
  ASSERT_EQ(registered.grown.size(), 1u);
  EXPECT_EQ(registered.grown[0]->unit->id, 1u);
  EXPECT_EQ(registered.grown[0]->codec, fb::UnitCodec::Zstd);
  EXPECT_EQ(registered.grown[0]->flags, CKPT_UNIT_CONSTANT);
}

}  // namespace
}  // namespace ckpt::test
