// ckptctl with blobs: show, blobs, diff.
#include <gmock/gmock.h>

#include "tests/client/ctl_fixture.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

class CtlBlobs : public Ctl {
 protected:
  void SetUp() override {
    Ctl::SetUp();
    auto session = train(as_rank(0, 1));
    ASSERT_OK(session);
    client::SnapshotOptions plan;
    plan.step = 30;
    plan.units = {2};
    plan.fragments = {{0, 2, 0, 8}};
    plan.blobs = {{"rng", rng_.size(), false}, {"loader", 3, true}};
    auto snapshot = session->begin(plan);
    ASSERT_OK(snapshot);
    ASSERT_OK(snapshot->write(2, 0, &plan.step, 8));
    ASSERT_OK(snapshot->write_blob("rng", rng_.data(), rng_.size()));
    ASSERT_OK(snapshot->write_blob("loader", "abc", 3, /*global=*/true));
    ASSERT_OK(snapshot->end());
    ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
    client::RestoreOptions from;
    from.step = 30;
    const auto read = session->read_blob(from, "rng", 0);
    ASSERT_OK(read);
    EXPECT_EQ(*read, rng_);
    ASSERT_OK(session->leave());
  }

  const std::string rng_ = std::string(600'000, 'r');
};

TEST_F(CtlBlobs, AreListedAndWrittenIntoAFolder) {
  const Json shown = json({"show", "tiny@30"});
  ASSERT_EQ(shown["blobs"].size(), 2u);
  expect_members(shown["blobs"][0], {"blob", "rank", "global", "bytes", "crc32c"});
  EXPECT_THAT(ctl({"show", "tiny@30"}).out, HasSubstr("loader  all ranks"));
  EXPECT_EQ(json({"blobs", "tiny@30"})["blobs"], shown["blobs"]);
  EXPECT_THAT(ctl({"blobs", "tiny@20"}).out, HasSubstr("tiny~1@20: 0 blobs"));
  const TempFolder folder;
  const std::string out = folder.path("blobs");
  EXPECT_EQ(json({"blobs", "tiny@30", "--out", out})["files"],
            Json({"rank-0.rng", "global.loader"}));
  EXPECT_EQ(read(out + "/rank-0.rng"), rng_);
  EXPECT_EQ(read(out + "/global.loader"), "abc");
  const Finished again = ctl({"blobs", "tiny@30", "--out", out});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("rank-0.rng exists; remove it or choose another folder"));
}

TEST_F(CtlBlobs, DiffNamesBlobs) {
  const Json diff = json({"diff", "tiny@20", "tiny@30", "--no-norms"});
  ASSERT_EQ(diff["blobs"].size(), 2u);
  EXPECT_EQ(diff["blobs"][0]["change"], "added");
  EXPECT_THAT(ctl({"diff", "tiny@20", "tiny@30"}).out, HasSubstr("rng     rank 0     added"));
}

TEST_F(CtlBlobs, ResumableExportReportsOmittedBlobs) {
  const TempFolder folder;
  const Finished exported =
      ctl({"export", "tiny@30", "--resumable", "--out", folder.path("model")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("step 30: 2 blobs are left out"));
}

}  // namespace
}  // namespace ckpt::test
