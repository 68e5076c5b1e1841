// Commits with deltas: how the catalog accounts for their bases, and which bases it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ckptd/catalog/kv_fixture.h"
#include "tests/ckptd/catalog/records.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::HasSubstr;

class DeltaRecordsTest : public testing::Test {
 protected:
  void SetUp() override {
    must(store_opened());
    must(run_created());
    must(units_registered(units_));
    must(lineage_opened(1, 0, 0));
    must(committed({.point = {1, 1}, .units = all_units(units_), .full = true}, units_));
  }
  void must(const fb::RecordT& record) {
    const Status applied = catalog_.apply(next_++, record);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  // A commit of unit 0 whose first fragment is a delta against the fragment of step 1.
  fb::RecordT delta_record(ViewPoint point) {
    fb::RecordT record = committed({.point = point, .units = {0}}, units_);
    fb::CommittedT& commit = *record.body.AsCommitted();
    const auto other = catalog_.record(kTestRun, 1, 1);
    EXPECT_TRUE(other.has_value());
    commit.extents.push_back(std::make_unique<fb::ExtentT>(*other->extents[0]));
    commit.extents.back()->lineage = 1;
    commit.extents.back()->epoch = other->epoch;
    commit.extents.back()->step = 1;
    std::vector<CommitPiece> pieces = pieces_of(commit);
    const fb::Fragment one = pieces[0].fragment;
    pieces[0].fragment = {one.unit(),
                          one.extent(),
                          one.offset(),
                          one.length(),
                          one.payload_offset(),
                          one.crc32c(),
                          static_cast<uint32_t>(ckpt::Codec::kDeltaZstd)};
    pieces[0].encoded = fb::Encoded(0, 7, 5);
    pieces[0].base = fb::Base(0, 1, other->fragments[0].payload_offset(),
                              other->fragments[0].crc32c(), 0, 0, 0, 1);
    put_pieces(commit, pieces);
    return record;
  }

  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  Catalog catalog_{make_memory_store()};
  uint64_t next_ = 1;
};

// A base is an extent of an earlier commit. Its blocks stay live as long as the delta.
TEST_F(DeltaRecordsTest, BaseIsLiveUntilItsDeltaIsDeleted) {
  const fb::RecordT delta = delta_record({1, 2});
  must(delta);
  const auto version = catalog_.newest_version(kTestRun, 0, {1, 2}, std::nullopt);
  ASSERT_TRUE(version.has_value());
  ASSERT_TRUE(version->fragments[0].base.has_value());
  const BasePlace& base = *version->fragments[0].base;
  EXPECT_EQ(base.written_by, (ViewPoint{1, 1}));
  EXPECT_EQ(base.payload_offset,
            catalog_.newest_version(kTestRun, 0, {1, 1}, {})->fragments[0].payload_offset);
  EXPECT_EQ(ckpt::encode_record(make_record(*catalog_.record(kTestRun, 1, 2))),
            ckpt::encode_record(delta));
  must(deleted({1, 1}, "x"));
  EXPECT_TRUE(catalog_.dead_space(kTestRun).empty()) << "its header and its only block stay";
  must(deleted({1, 2}, "x"));
  EXPECT_EQ(catalog_.live_extents(1).value(), 0u);
}

TEST_F(DeltaRecordsTest, RefusesInvalidBases) {
  const auto refused = [this](auto spoil, const std::string& says) {
    fb::RecordT record = delta_record({1, 2});
    fb::CommittedT& commit = *record.body.AsCommitted();
    std::vector<CommitPiece> pieces = pieces_of(commit);
    spoil(commit, pieces);
    put_pieces(commit, pieces);
    const auto applied = catalog_.apply(next_, record);
    ASSERT_FALSE(applied.ok()) << says;
    EXPECT_EQ(applied.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(applied.error().message, HasSubstr("step 2 unit " + units_[0].name + ": " + says));
  };
  using Pieces = std::vector<CommitPiece>;
  const auto base = [](const fb::Base& of, uint32_t extent, uint64_t payload_offset, uint32_t codec,
                       uint64_t encoded, uint32_t deltas) {
    return fb::Base(of.fragment(), extent, payload_offset, of.crc32c(), codec, encoded, 0, deltas);
  };
  refused([](fb::CommittedT&, Pieces& all) { all[0].base.reset(); }, "a delta without a base");
  refused(
      [](fb::CommittedT&, Pieces& all) {
        const fb::Fragment& one = all[0].fragment;
        all[0].fragment = {one.unit(),
                           one.extent(),
                           one.offset(),
                           one.length(),
                           one.payload_offset(),
                           one.crc32c(),
                           static_cast<uint32_t>(ckpt::Codec::kZstd)};
      },
      "a base of what is no delta");
  refused([&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 2, 0, 0, 0, 1); },
          "unknown extent number 2 of a base");
  refused([&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 0, 0, 0, 0, 1); },
          "its base is of the same commit");
  refused([](fb::CommittedT& commit, Pieces&) { commit.extents[1]->lineage = 0; },
          "its base is of the same commit");
  refused([&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 1, 0, 5, 1, 1); },
          "its base is a delta itself");
  refused([&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 1, 0, 99, 1, 1); },
          "its base: unknown codec 99");
  refused([&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 1, 0, 1, 0, 1); },
          "its base: 0 encoded bytes");
  refused([&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 1, 0, 0, 0, 0); },
          "it is delta number 0 to its base");
  for (const uint64_t offset : {uint64_t{1} << 20, ~uint64_t{0}}) {
    refused(
        [&](fb::CommittedT&, Pieces& all) { all[0].base = base(*all[0].base, 1, offset, 0, 0, 1); },
        "its base lies outside its extent's payload");
  }
  fb::RecordT more = delta_record({1, 2});
  fb::CommittedT& commit = *more.body.AsCommitted();
  commit.bases.push_back(fb::Base(99, 1, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(catalog_.apply(next_, more).error().message,
              HasSubstr("step 2: a base of a fragment that is not there"));
  must(delta_record({1, 2}));
}

}  // namespace
}  // namespace ckptd
