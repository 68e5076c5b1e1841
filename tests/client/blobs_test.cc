// Blobs as the daemon sees them, and the refusal for an older daemon.
#include "formats/blob.h"
#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

TEST_F(SnapshotTest, BlobsAreSealedUnderTheirIds) {
  start();
  open({100});
  plan_.blobs = {{"rng", 300'000, false}, {"empty", 0, false}, {"loader", 5, true}};
  Snapshot snapshot = begin();
  const fb::MessageT begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1)[0];
  const fb::BeginSnapshotT& body = *begun.body.AsBeginSnapshot();
  ASSERT_EQ(body.blobs.size(), 3u);
  EXPECT_EQ(body.blobs[0]->name, "rng");
  EXPECT_EQ(body.blobs[0]->bytes, 300'000u);
  EXPECT_TRUE(body.blobs[2]->global);
  EXPECT_EQ(body.slabs_wanted, 2u);
  EXPECT_EQ(body.fragments.size(), 1u) << "the plan knows no blobs";
  const std::vector<char> rng = random_bytes(300'000, 7);
  ASSERT_OK(snapshot.write_blob("rng", rng.data(), 1'000));
  write(snapshot, 0);
  ASSERT_OK(snapshot.write_blob("rng", rng.data() + 1'000, rng.size() - 1'000));
  ASSERT_OK(snapshot.write_blob("loader", "abcde", 5, /*global=*/true));
  ASSERT_OK(snapshot.write_blob("empty", nullptr, 0));
  ASSERT_OK(snapshot.end());
  std::vector<char> found(rng.size());
  uint64_t of_loader = 0;
  for (const fb::SealSlabT& seal : seals(body.slabs_wanted)) {
    for (const fb::SealedFragment& fragment : seal.fragments) {
      if (fragment.unit() == blob_id(0, 2)) of_loader += fragment.length();
      if (fragment.unit() != blob_id(0, 0)) continue;
      const auto from = daemon_->slab(seal.slab).subspan(fragment.payload_offset());
      std::memcpy(found.data() + fragment.offset(), from.data(), fragment.length());
      EXPECT_EQ(base::crc32c(from.first(fragment.length())), fragment.crc32c());
    }
  }
  EXPECT_EQ(found, rng);
  EXPECT_EQ(of_loader, 5u);
}

TEST_F(SnapshotTest, WrongWritesOfBlobsAreRefused) {
  start();
  open({100});
  plan_.blobs = {{"rng", 10, false}};
  Snapshot snapshot = begin();
  write(snapshot, 0);
  EXPECT_EQ(snapshot.write_blob("other", "x", 1).error().message,
            "run tiny step 1200: no blob named other was declared");
  EXPECT_EQ(snapshot.write_blob("rng", "x", 1, /*global=*/true).error().message,
            "run tiny step 1200: no global blob named rng was declared");
  ASSERT_OK(snapshot.write_blob("rng", "12345", 5));
  EXPECT_EQ(snapshot.write_blob("rng", "123456", 6).error().message,
            "run tiny step 1200: blob rng: 6 bytes after its first 5, but 10 were declared");
  EXPECT_EQ(snapshot.end().error().message,
            "run tiny step 1200 blob rng: bytes [5, 10) of this rank were not written");
}

TEST_F(SnapshotTest, OlderDaemonRefusesBlobs) {
  start({.protocol_version = 3});
  open({100});
  plan_.blobs = {{"rng", 10, false}};
  const auto begun = session_->begin(plan_);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().status, CKPT_E_VERSION_MISMATCH);
  EXPECT_EQ(begun.error().message,
            "run tiny step 1200: ckptd speaks protocol 3, and blobs need 4: upgrade ckptd");
  client::RestoreOptions from;
  from.step = 1200;
  EXPECT_EQ(session_->blobs(from).error().status, CKPT_E_VERSION_MISMATCH);
  plan_.blobs.clear();
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
}

TEST_F(SnapshotTest, ReconnectToOlderDaemonFailsSnapshotWithBlobs) {
  start();
  open({100});
  plan_.blobs = {{"empty", 0, false}};
  Snapshot snapshot = begin();
  write(snapshot, 0);
  ASSERT_OK(snapshot.end());
  seals(1);
  daemon_.reset();
  start({.protocol_version = 3});
  const auto failed = snapshot.wait(CKPT_LEVEL_DURABLE, 20'000);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().status, CKPT_E_ABORTED);
  EXPECT_NE(failed.error().message.find("blobs need 4: upgrade ckptd"), std::string::npos)
      << failed.error().message;
  daemon_->wait_for(fb::MessageBody::AbortSnapshot, 1);
  const std::vector<fb::MessageBody> types = daemon_->types();
  EXPECT_EQ(std::ranges::count(types, fb::MessageBody::ReopenSnapshot), 0);
}

TEST_F(SnapshotTest, BeginWithBlobsFailsOnOlderDaemon) {
  start();
  open({100});
  plan_.blobs = {{"rng", 10, false}};
  // The session believes in the first daemon until the second one has answered.
  daemon_.reset();
  start({.protocol_version = 3});
  const auto begun = session_->begin(plan_);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().status, CKPT_E_VERSION_MISMATCH) << begun.error().message;
  daemon_->wait_for(fb::MessageBody::AbortSnapshot, 1);
}

}  // namespace
}  // namespace ckpt::test
