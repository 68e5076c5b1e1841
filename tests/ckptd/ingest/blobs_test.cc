// Blobs in ingest: declared by each rank alone, sealed like fragments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/ingest/ingest.h"

namespace ckptd {
namespace {

using ckpt::blob_id;
using testing::HasSubstr;

// Two ranks, each with half of the one unit. Rank 0 has two blobs, rank 1 none.
class IngestBlobsTest : public testing::Test {
 protected:
  static constexpr uint64_t kHalf = 500;
  const ckpt::SnapshotKey key_{.run = 7, .lineage = 1, .epoch = 3, .step = 5};
  std::optional<Ingest> ingest_{std::in_place};

  static std::shared_ptr<const std::vector<ckpt::UnitSpec>> one_unit() {
    std::vector<ckpt::UnitSpec> units(1);
    units[0].name = "trainer";
    units[0].bytes = 2 * kHalf;
    return std::make_shared<const std::vector<ckpt::UnitSpec>>(units);
  }
  Ingest::Outcome begin(ckpt::Rank rank, const std::vector<ckpt::BlobSpec>& blobs) {
    ckpt::Plan plan{.units = {0}, .fragments = {}};
    for (const ckpt::Rank of : {0u, 1u}) plan.fragments.push_back({of, {0, of * kHalf, kHalf}});
    Ingest::Begin part;
    part.snapshot = key_;
    part.run_name = "tiny";
    part.rank = rank;
    part.group_size = 2;
    part.plan = plan_hash(plan);
    part.units = {0};
    part.fragments = {{0, rank * kHalf, kHalf}};
    part.blobs = blobs;
    part.deadline = Time(1000);
    return ingest_->begin(part, one_unit());
  }
  void begin_both() {
    ASSERT_TRUE(begin(0, {{"rng", 100}, {"loader", 40, true}, {"empty", 0}}).status.ok());
    ASSERT_TRUE(begin(1, {}).status.ok());
  }
  Ingest::Outcome seal(ckpt::Rank rank, const std::vector<ckpt::ExtentFragment>& fragments) {
    return ingest_->sealed(key_, rank, fragments);
  }
  Ingest::Outcome seal_half(ckpt::Rank rank) {
    return seal(rank, {{.unit = 0, .offset = rank * kHalf, .length = kHalf}});
  }
};

TEST_F(IngestBlobsTest, CommitsOnceAllAreSealed) {
  begin_both();
  EXPECT_TRUE(seal_half(1).actions.empty());
  EXPECT_TRUE(seal_half(0).actions.empty());
  EXPECT_FALSE(ingest_->is_staged(key_));
  EXPECT_TRUE(seal(0, {{.unit = blob_id(0, 0), .length = 60}}).actions.empty());
  const auto last = seal(0, {{.unit = blob_id(0, 0), .offset = 60, .length = 40},
                             {.unit = blob_id(0, 1), .length = 40}});
  EXPECT_TRUE(ingest_->is_staged(key_));
  ASSERT_EQ(last.actions.size(), 1u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ingest_->written(key_, {}).empty());
  const auto actions = ingest_->written(key_, {});
  ASSERT_EQ(actions.size(), 1u);
  const auto* commit = std::get_if<Ingest::CommitAction>(&actions[0]);
  ASSERT_NE(commit, nullptr);
  const std::map<ckpt::UnitId, ckpt::BlobSpec> expected = {{blob_id(0, 0), {"rng", 100}},
                                                           {blob_id(0, 1), {"loader", 40, true}},
                                                           {blob_id(0, 2), {"empty", 0}}};
  EXPECT_EQ(commit->blobs, expected);
}

TEST_F(IngestBlobsTest, DeadlineNamesUnsealedBlob) {
  begin_both();
  seal_half(0);
  seal_half(1);
  const auto actions = ingest_->tick(Time(1000));
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_THAT(std::get<Ingest::FailAction>(actions[0]).error.message,
              HasSubstr("rank 0 has not sealed all of unit rng (blob of rank 0)"));
}

TEST_F(IngestBlobsTest, WrongSealsFailTheSnapshot) {
  const std::vector<ckpt::ExtentFragment> wrong = {
      {.unit = blob_id(1, 0), .length = 10},                  // another rank's
      {.unit = blob_id(0, 3), .length = 10},                  // not declared
      {.unit = blob_id(0, 2), .length = 1},                   // declared as empty
      {.unit = blob_id(0, 0), .length = 101},                 // too long
      {.unit = blob_id(0, 0), .offset = 100, .length = 1},    // behind its end
      {.unit = blob_id(0, 0), .offset = ~0ull, .length = 2},  // overflows
  };
  for (const ckpt::ExtentFragment& fragment : wrong) {
    ingest_.emplace();
    begin_both();
    const auto outcome = seal(0, {fragment});
    ASSERT_FALSE(outcome.status.ok());
    EXPECT_THAT(outcome.status.error().message, HasSubstr("sealed but not declared"));
    EXPECT_FALSE(ingest_->is_open(key_));
  }
  ingest_.emplace();
  begin_both();
  ASSERT_TRUE(seal(0, {{.unit = blob_id(0, 1), .length = 40}}).status.ok());
  EXPECT_THAT(seal(0, {{.unit = blob_id(0, 1), .length = 40}}).status.error().message,
              HasSubstr("sealed twice"));
}

TEST_F(IngestBlobsTest, RefusesGlobalBlobOfTwoRanks) {
  ASSERT_TRUE(begin(0, {{"loader", 1, true}}).status.ok());
  const auto again = begin(1, {{"loader", 1, true}});
  ASSERT_FALSE(again.status.ok());
  EXPECT_THAT(again.status.error().message,
              HasSubstr("ranks 0 and 1 both declare the global blob loader"));
}

TEST_F(IngestBlobsTest, BlobsOfAllRanksAreBounded) {
  std::vector<ckpt::BlobSpec> blobs;
  for (size_t i = 0; i < ckpt::kBlobsPerCommitMax; ++i) blobs.push_back({std::to_string(i), 0});
  ASSERT_TRUE(begin(0, blobs).status.ok());
  const auto more = begin(1, {{"more", 0}});
  ASSERT_FALSE(more.status.ok());
  EXPECT_THAT(more.status.error().message, HasSubstr("4097 blobs of all ranks"));
}

}  // namespace
}  // namespace ckptd
