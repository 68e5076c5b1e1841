// Places: room in slabs that the caller fills, later and in any order.
#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

class PlacesTest : public SnapshotTest {
 protected:
  struct Reserved {
    client::Place place;
    ByteView bytes;  // what belongs there
  };
  // The whole unit, in places of at most `piece` bytes.
  std::vector<Reserved> reserve(Snapshot& snapshot, uint32_t unit, uint64_t piece) {
    std::vector<Reserved> places;
    const ByteView data = std::as_bytes(std::span(data_[unit]));
    for (uint64_t at = 0; at < data.size();) {
      const auto place = snapshot.reserve(unit, at, std::min(piece, data.size() - at));
      EXPECT_TRUE(place.ok()) << place.error().message;
      if (!place.ok()) break;
      places.push_back({*place, data.subspan(at, place->length)});
      at += place->length;
    }
    return places;
  }
  static void fill(Snapshot& snapshot, const Reserved& reserved) {
    std::memcpy(reserved.place.data, reserved.bytes.data(), reserved.bytes.size());
    ASSERT_OK(snapshot.filled(reserved.place.id, base::crc32c(reserved.bytes)));
  }
};

TEST_F(PlacesTest, MayBeFilledInAnyOrderBeforeEnd) {
  start();
  open({100, 70'000, 600'000, 65'536, 1});
  uint64_t arena_bytes = 0;
  std::memset(ckpt_arena(session_->handle(), &arena_bytes), 0xee, arena_bytes);
  Snapshot snapshot = begin();
  std::vector<Reserved> places;
  for (uint32_t unit = 0; unit < data_.size(); ++unit) {
    const auto some = reserve(snapshot, unit, 50'000);
    places.insert(places.end(), some.begin(), some.end());
  }
  const auto early = snapshot.end();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().status, CKPT_E_FAILED_PRECONDITION);
  std::shuffle(places.begin(), places.end(), std::mt19937_64(5));
  for (const Reserved& reserved : places) fill(snapshot, reserved);
  ASSERT_OK(snapshot.end());
  const auto begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1);
  expect_payload(seals(begun[0].body.AsBeginSnapshot()->slabs_wanted));
  EXPECT_EQ(snapshot.info().bytes, 100u + 70'000 + 600'000 + 65'536 + 1);
}

TEST_F(PlacesTest, MayBeMixedWithCopies) {
  start();
  open({90'000, 300'000, 5000});
  Snapshot snapshot = begin();
  write(snapshot, 2);
  const auto first = reserve(snapshot, 0, 30'000);
  write(snapshot, 1);  // into the same slab, and into the next
  for (const Reserved& reserved : first) fill(snapshot, reserved);
  ASSERT_OK(snapshot.end());
  expect_payload(seals(2));
}

TEST_F(PlacesTest, InvalidCallsAreRefused) {
  start();
  open({1000});
  Snapshot snapshot = begin();
  EXPECT_EQ(snapshot.reserve(0, 10, 10).error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_EQ(snapshot.reserve(0, 0, 0).error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_EQ(snapshot.reserve(0, 0, 1001).error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_EQ(snapshot.filled(1, 0).error().status, CKPT_E_INVALID_ARGUMENT);
  const auto places = reserve(snapshot, 0, 1000);
  ASSERT_EQ(places.size(), 1u);
  fill(snapshot, places[0]);
  EXPECT_EQ(snapshot.filled(places[0].place.id, 0).error().status, CKPT_E_INVALID_ARGUMENT);
  ASSERT_OK(snapshot.end());
  expect_payload(seals(1));
}

// A copy engine keeps writing after its snapshot has failed: the next snapshot must not fill the
// slab.
TEST_F(PlacesTest, SlabIsNotReusedWhilePlaceIsLent) {
  const FakeDaemon::Options two_slabs{.slab_bytes = kSlabBytes, .slab_count = 2};
  start(two_slabs);
  open({1000});
  plan_.timeout_ms = 20;
  Snapshot snapshot = begin();
  const auto places = reserve(snapshot, 0, 1000);
  ASSERT_EQ(places.size(), 1u);
  ASSERT_OK(snapshot.abort("enough"));

  plan_.attempt = 1;
  Snapshot second = begin();  // is leased the other slab
  const auto of_second = reserve(second, 0, 1000);
  ASSERT_EQ(of_second.size(), 1u);
  EXPECT_NE(of_second[0].place.data, places[0].place.data);
  ASSERT_OK(second.abort("enough"));

  plan_.attempt = 2;
  Snapshot third = begin();  // the first slab again
  EXPECT_EQ(third.reserve(0, 0, 1000).error().status, CKPT_E_RESOURCE_EXHAUSTED);
  const auto late = snapshot.filled(places[0].place.id, 0);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().status, CKPT_E_ABORTED);
  const auto of_third = reserve(third, 0, 1000);
  ASSERT_EQ(of_third.size(), 1u);
  EXPECT_EQ(of_third[0].place.data, places[0].place.data);
  fill(third, of_third[0]);
  ASSERT_OK(third.end());
  EXPECT_FALSE(second.filled(of_second[0].place.id, 0));
  expect_payload(seals(1));
}

TEST_F(PlacesTest, ReconnectReportsSlabsBeingFilled) {
  start();
  open({kSlabBytes, kSlabBytes});
  Snapshot snapshot = begin();
  const auto first = reserve(snapshot, 0, kSlabBytes);
  const auto second = reserve(snapshot, 1, kSlabBytes);  // closes the first slab
  daemon_.reset();
  start();
  ASSERT_OK(session_->kv_set("again", "here"));
  const auto reopened = daemon_->wait_for(fb::MessageBody::ReopenSnapshot, 1);
  EXPECT_EQ(reopened[0].body.AsReopenSnapshot()->leased.size(), 2u);
  for (const Reserved& reserved : second) fill(snapshot, reserved);
  for (const Reserved& reserved : first) fill(snapshot, reserved);
  ASSERT_OK(snapshot.end());
  ASSERT_OK(session_->kv_set("all", "sent"));
  expect_payload(seals(2));
}

}  // namespace
}  // namespace ckpt::test
