// Blobs in the catalog: listed with their commit, gone with it, and checked as the journal has
// them.
#include <gmock/gmock.h>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using ckpt::blob_id;
using testing::IsEmpty;

constexpr ckpt::Rank kRank = 3;
constexpr ViewPoint kPoint{1, 10};

class CatalogBlobsTest : public testing::Test {
 protected:
  CatalogBlobsTest() {
    for (const fb::RecordT& record :
         {store_opened(), run_created(), units_registered(units_), lineage_opened(1, 0, 0)}) {
      EXPECT_TRUE(apply(record).ok());
    }
  }
  Status apply(const fb::RecordT& record) {
    return catalog_.apply(catalog_.applied_sequence() + 1, record);
  }
  // All units in one extent, then the blobs `rng`, in two pieces, and `empty`.
  fb::CommittedT commit() const {
    std::vector<ckpt::UnitId> all(units_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<ckpt::UnitId>(i);
    fb::RecordT record = committed({.point = kPoint, .units = all}, units_);
    fb::CommittedT commit = *record.body.AsCommitted();
    fb::ExtentT& extent = *commit.extents[0];
    extent.rank = kRank;
    const uint64_t at = extent.payload_bytes;
    extent.payload_bytes += 100;
    add_blob(commit, blob_id(kRank, 0), "rng", 100);
    add_blob(commit, blob_id(kRank, 1), "empty", 0);
    commit.blob_fragments = {fb::Fragment(blob_id(kRank, 0), 0, 0, 60, at, 1, 0),
                             fb::Fragment(blob_id(kRank, 0), 0, 60, 40, at + 60, 2, 0)};
    return commit;
  }
  static void add_blob(fb::CommittedT& commit, ckpt::UnitId id, const std::string& name,
                       uint64_t bytes, bool global = false) {
    commit.blobs.push_back(std::make_unique<fb::BlobT>());
    commit.blobs.back()->id = id;
    commit.blobs.back()->name = name;
    commit.blobs.back()->bytes = bytes;
    commit.blobs.back()->global = global;
  }

  const std::vector<ckpt::UnitSpec> units_ = [] {
    std::vector<ckpt::UnitSpec> units(2);
    units[0].name = "a";
    units[1].name = "b";
    for (ckpt::UnitSpec& unit : units) unit.bytes = 9'000;
    return units;
  }();
  Catalog catalog_{make_memory_store()};
};

TEST_F(CatalogBlobsTest, ListsBlobsWithTheirPlaces) {
  ASSERT_TRUE(apply(make_record(commit())).ok());
  const auto blobs = catalog_.blobs(kTestRun, kPoint);
  ASSERT_EQ(blobs.size(), 2u);
  EXPECT_EQ(blobs[0].label(), "rng (blob of rank 3)");
  EXPECT_EQ(blobs[0].version.unit, blob_id(kRank, 0));
  EXPECT_EQ(blobs[0].version.snapshot.step, kPoint.step);
  ASSERT_EQ(blobs[0].version.fragments.size(), 2u);
  EXPECT_EQ(blobs[0].version.fragments[1].offset, 60u);
  EXPECT_EQ(blobs[0].version.crc32c, ckpt::base::crc32c_combine(1, 2, 40));
  EXPECT_THAT(blobs[1].version.fragments, IsEmpty());
  EXPECT_THAT(catalog_.blobs(kTestRun, {1, 11}), IsEmpty());
  const auto info = catalog_.commit(kTestRun, kPoint.lineage, kPoint.step);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->blobs, 2u);
  EXPECT_EQ(info->blob_bytes, 100u);
  EXPECT_EQ(info->bytes, 18'100u);
  EXPECT_EQ(catalog_.run(kTestRun)->bytes, 18'100u);
}

// Unit 0 stays for views of other commits. The blocks of the blob are dead all the same.
TEST_F(CatalogBlobsTest, DeletionKeepsNoBlob) {
  const fb::CommittedT body = commit();
  ASSERT_TRUE(apply(make_record(body)).ok());
  ASSERT_TRUE(apply(deleted(kPoint, "test", {0})).ok());
  EXPECT_THAT(catalog_.blobs(kTestRun, kPoint), IsEmpty());
  EXPECT_EQ(catalog_.commit(kTestRun, kPoint.lineage, kPoint.step)->blobs, 0u);
  const auto rest = catalog_.record(kTestRun, kPoint.lineage, kPoint.step);
  ASSERT_TRUE(rest.has_value());
  EXPECT_THAT(rest->blobs, IsEmpty());
  EXPECT_THAT(rest->blob_fragments, IsEmpty());
  const auto dead = catalog_.dead_space(kTestRun);
  ASSERT_EQ(dead.size(), 1u);
  const fb::ExtentT& extent = *body.extents[0];
  const uint64_t end = extent.offset + extent.header_bytes + extent.payload_bytes;
  EXPECT_GE(dead[0].ranges.back().offset + dead[0].ranges.back().bytes, end);
  EXPECT_EQ(catalog_.run(kTestRun)->bytes, 0u);
}

TEST_F(CatalogBlobsTest, ForgedRecordsAreRefused) {
  using Change = void (*)(fb::CommittedT&);
  const std::vector<std::pair<const char*, Change>> forged = {
      {"an id of a unit", [](fb::CommittedT& c) { c.blobs[0]->id = 1; }},
      {"ids not ascending", [](fb::CommittedT& c) { c.blobs[1]->id = c.blobs[0]->id; }},
      {"a bad name", [](fb::CommittedT& c) { c.blobs[0]->name = "a/b"; }},
      {"no name", [](fb::CommittedT& c) { c.blobs[0]->name.clear(); }},
      {"a name twice", [](fb::CommittedT& c) { c.blobs[1]->name = "rng"; }},
      {"too large", [](fb::CommittedT& c) { c.blobs[1]->bytes = ~0ull; }},
      {"a hole", [](fb::CommittedT& c) { c.blob_fragments.pop_back(); }},
      {"an overlap", [](fb::CommittedT& c) { c.blob_fragments[1] = c.blob_fragments[0]; }},
      {"bytes of an empty one",
       [](fb::CommittedT& c) { c.blob_fragments.emplace_back(c.blobs[1]->id, 0, 0, 1, 0, 0, 0); }},
      {"a fragment without a blob",
       [](fb::CommittedT& c) {
         c.blob_fragments.emplace_back(blob_id(kRank, 7), 0, 0, 1, 0, 0, 0);
       }},
      {"a fragment of a unit",
       [](fb::CommittedT& c) { c.blob_fragments.emplace_back(0, 0, 0, 1, 0, 0, 0); }},
      {"an unknown extent",
       [](fb::CommittedT& c) {
         c.blob_fragments[0] = fb::Fragment(c.blobs[0]->id, 9, 0, 60, 0, 1, 0);
       }},
      {"outside its extent",
       [](fb::CommittedT& c) {
         c.blob_fragments[0] = fb::Fragment(c.blobs[0]->id, 0, 0, 60, ~0ull, 1, 0);
       }},
      {"encoded",
       [](fb::CommittedT& c) {
         c.blob_fragments[0] = fb::Fragment(c.blobs[0]->id, 0, 0, 60, 0, 1, 1);
       }},
      {"an extent of another rank", [](fb::CommittedT& c) { c.extents[0]->rank = kRank + 1; }},
      {"a shared extent", [](fb::CommittedT& c) { c.extents[0]->lineage = 1; }},
      {"a global name twice",
       [](fb::CommittedT& c) {
         add_blob(c, blob_id(kRank, 2), "all", 0, true);
         add_blob(c, blob_id(kRank + 1, 0), "all", 0, true);
       }},
      {"more than the most",
       [](fb::CommittedT& c) {
         for (size_t i = 0; i < ckpt::kBlobsPerCommitMax; ++i) {
           add_blob(c, blob_id(kRank + 1, i), std::to_string(i), 0);
         }
       }},
  };
  for (const auto& [what, change] : forged) {
    fb::CommittedT body = commit();
    change(body);
    const Status applied = apply(make_record(body));
    ASSERT_FALSE(applied.ok()) << what;
    EXPECT_EQ(applied.error().code, ckpt::ErrorCode::kCorrupt) << what;
    EXPECT_FALSE(catalog_.commit(kTestRun, kPoint.lineage, kPoint.step).has_value()) << what;
    EXPECT_TRUE(catalog_.health().ok()) << what;
  }
  EXPECT_TRUE(apply(make_record(commit())).ok());
}

}  // namespace
}  // namespace ckptd
