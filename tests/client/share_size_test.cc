// Shares that may stream: which ones do, and how they request slabs.
#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

class ShareSizeTest : public SnapshotTest {
 protected:
  fb::BeginSnapshotT begun() {
    return *daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1)[0].body.AsBeginSnapshot();
  }
};

TEST_F(ShareSizeTest, ShareThatFitsDoesNotStream) {
  start({.snapshot_slabs = 6});
  plan_.streams = true;
  open({1'000'000, 250'000});  // five slabs: one is a margin
  Snapshot snapshot = begin();
  EXPECT_FALSE(begun().streams);
  EXPECT_EQ(begun().slabs_wanted, 5u);
}

TEST_F(ShareSizeTest, LargerShareRequestsItsSlabsAhead) {
  start({.snapshot_slabs = 6});
  plan_.streams = true;
  open({1'000'000, 900'000});  // eight slabs
  Snapshot snapshot = begin();
  EXPECT_TRUE(begun().streams);
  EXPECT_EQ(begun().slabs_wanted, 4u);
  write(snapshot, 0);  // fills three slabs, and begins the fourth
  uint32_t requested = 0;
  for (const auto& message : daemon_->wait_for(fb::MessageBody::LeaseSlabs, 4)) {
    requested += message.body.AsLeaseSlabs()->count;
  }
  EXPECT_EQ(requested, 4u) << "before any of them is needed, and no more than the share needs";
  write(snapshot, 1);
  ASSERT_OK(snapshot.end());
  expect_payload(seals(8));
  const auto types = daemon_->types();
  EXPECT_EQ(std::count(types.begin(), types.end(), fb::MessageBody::LeaseSlabs), 4);
}

TEST_F(ShareSizeTest, OlderDaemonReservesTwoSlabs) {
  start();
  plan_.streams = true;
  open({1'000'000, 900'000});
  Snapshot snapshot = begin();
  EXPECT_TRUE(begun().streams);
}

}  // namespace
}  // namespace ckpt::test
