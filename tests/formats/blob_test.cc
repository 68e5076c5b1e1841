#include "formats/blob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/commit.h"
#include "formats/journal.h"
#include "formats/unit.h"

namespace ckpt {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<BlobSpec>& blobs) {
  const Status checked = check_blobs(blobs);
  return checked.ok() ? "" : checked.error().message;
}

TEST(Blob, IdsNameRankAndPosition) {
  for (const Rank rank : {Rank{0}, Rank{7}, kBlobRanksMax - 1}) {
    for (const size_t index : {size_t{0}, size_t{3}, kBlobsPerCommitMax - 1}) {
      const UnitId id = blob_id(rank, index);
      EXPECT_TRUE(is_blob(id));
      EXPECT_EQ(rank_of_blob(id), rank);
      EXPECT_EQ(index_of_blob(id), index);
    }
  }
  EXPECT_FALSE(is_blob(kFirstBlob - 1));
}

TEST(Blob, ListsWithinTheBoundsPass) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"rng", kBlobBytesPerRankMax}, {"rng", 0, true}, {"a%2Fb.c-d_", 0}}), "");
  std::vector<BlobSpec> many;
  for (size_t i = 0; i < kBlobsPerCommitMax; ++i) many.push_back({std::to_string(i), 1});
  EXPECT_EQ(refusal(many), "");
  many.push_back({"more", 1});
  EXPECT_EQ(refusal(many), "4097 blobs, the most is 4096");
}

TEST(Blob, BadNamesAndSizesAreRefused) {
  const std::string long_name(kUnitNameBytesMax + 1, 'a');
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a\nb"),
                                  std::string("a\0b", 3), std::string("\xff"), long_name}) {
    EXPECT_THAT(refusal({{name, 1}}), HasSubstr("a blob name is 1 to 255 characters"));
  }
  EXPECT_EQ(refusal({{"rng", 1}, {"rng", 1}}), "blob rng: declared twice");
  for (const uint64_t bytes : {kBlobBytesPerRankMax + 1, UINT64_MAX}) {
    EXPECT_THAT(refusal({{"rng", bytes}}), HasSubstr("have at most 67108864 together"));
  }
  EXPECT_THAT(refusal({{"a", 1}, {"b", UINT64_MAX}}), HasSubstr("blob b"));
}

TEST(Blob, CommitWithBlobNeedsStoreVersionTen) {
  fb::RecordT record;
  record.body.Set(fb::CommittedT());
  EXPECT_EQ(store_version_of(record), 1u);
  record.body.AsCommitted()->blobs.push_back(std::make_unique<fb::BlobT>());
  EXPECT_EQ(store_version_of(record), 10u);
}

TEST(BlobDeathTest, EncodedBlobAborts) {
  WrittenExtent extent;
  extent.fragments.push_back({.unit = blob_id(0, 0), .codec = 1, .offset = 0, .length = 8});
  fb::CommittedT commit;
  EXPECT_DEATH(fill_extents({extent}, commit), "an encoded blob");
}

}  // namespace
}  // namespace ckpt
