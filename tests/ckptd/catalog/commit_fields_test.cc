// Every field that the schema declares for a commit, followed through journal, catalog, rebuild,
// salvage and dedup. Also built against a schema with one more field in each table
// (CMakeLists.txt): no path may need an edit for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "ckptd/catalog/salvage.h"
#include "formats/blob.h"
#include "formats/commit.h"
#include "tests/ckptd/catalog/kv_fixture.h"
#include "tests/ckptd/catalog/records.h"
#include "tests/formats/reflected.h"

namespace ckptd {
namespace {

using Fields = ckpt::test::Reflected::Fields;

constexpr auto kZstd = static_cast<uint32_t>(ckpt::Codec::kZstd);
constexpr auto kDelta = static_cast<uint32_t>(ckpt::Codec::kDeltaZstd);
const ckpt::UnitId kBlob = ckpt::blob_id(4, 1);
constexpr ckpt::UnitId kGrown = 3;  // behind the units of the fixture
constexpr uint64_t kGrownBytes = 28;
constexpr ckpt::Step kFirst = 1;
constexpr ckpt::Step kSecond = 2;

// The root is a Committed, not a Record: paths start with its fields.
std::vector<std::byte> bytes_of(const fb::CommittedT& commit) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Committed::Pack(builder, &commit));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

// An own extent names no writer.
std::set<std::string> writer_of_extent(const std::string& extent) {
  return {extent + ".lineage", extent + ".epoch", extent + ".step", extent + ".attempt"};
}

std::vector<fb::RecordT> through_journal(const std::vector<fb::RecordT>& records) {
  ckpt::JournalEncoder encoder;
  const auto batch = encoder.encode(records);
  std::vector<fb::RecordT> read;
  const auto scanned = ckpt::scan_journal(batch.bytes, [&](uint64_t, const fb::RecordT& record) {
    read.push_back(record);
    return Status();
  });
  EXPECT_TRUE(scanned.ok()) << scanned.error().message;
  return read;
}

class CommitFieldsTest : public testing::Test {
 protected:
  void SetUp() override {
    records_ = {store_opened(), run_created(), units_registered(units_), lineage_opened(1, 0, 0)};
    begun_ = records_.size();
    apply_all(catalog_, records_);
    add(first_commit());
    add(second_commit());
  }

  void add(const fb::CommittedT& commit) {
    records_.push_back(make_record(commit));
    const Status applied = catalog_.apply(records_.size(), records_.back());
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  // The commit with a value of its own in every field that has none, except in these.
  fb::CommittedT filled(const fb::CommittedT& commit, const std::set<std::string>& absent) {
    const std::vector<std::byte> bytes = schema_.filled(bytes_of(commit), absent);
    fb::CommittedT result;
    flatbuffers::GetRoot<fb::Committed>(bytes.data())->UnPackTo(&result);
    return result;
  }
  Fields fields(const fb::CommittedT& commit) const { return schema_.fields(bytes_of(commit)); }
  Fields fields(const std::optional<fb::CommittedT>& commit) const {
    return commit ? fields(*commit) : Fields();
  }
  Fields original(ckpt::Step step) const {
    return fields(*records_[begun_ + step - 1].body.AsCommitted());
  }
  Fields in(const Catalog& catalog, ckpt::Step step) const {
    return fields(catalog.record(kTestRun, 1, step));
  }

  // Writes the extent that the second commit shares.
  fb::CommittedT first_commit() {
    const fb::RecordT record =
        committed({.point = {1, kFirst}, .units = all_units(units_), .pieces = 1}, units_);
    fb::CommittedT commit = *record.body.AsCommitted();
    commit.epoch = 0;
    std::set<std::string> absent = writer_of_extent("extents[0]");
    absent.insert({"encoded", "bases", "alarms", "expert_tokens", "expert_lost", "blobs",
                   "blob_fragments", "grown"});
    return filled(commit, absent);
  }

  static ckpt::UnitSpec grown_unit() {
    return {.name = "adapter",
            .layer = 2,
            .expert = 5,
            .part = ckpt::UnitPart::kWeights,
            .bytes = kGrownBytes,
            .tensors = {{"w", ckpt::DType::kF32, {4}, 4}}};
  }

  // Raw, encoded, delta and shared fragments, as the daemon makes them.
  fb::CommittedT second_commit() {
    const fb::CommittedT first = *records_.back().body.AsCommitted();
    const std::vector<fb::ExtentT> listed = catalog_.extents(kTestRun, {1, kFirst});
    const fb::Fragment& base = first.fragments.at(1);
    const fb::Fragment& same = first.fragments.at(2);
    ckpt::WrittenExtent own;
    own.segment = 5;
    own.offset = 8192;
    own.header_bytes = 4096;
    own.payload_bytes = 92 + kGrownBytes;
    own.rank = 4;
    own.fragments = {{.unit = 0, .length = 32, .crc32c = 61},
                     {.unit = 0,
                      .codec = kZstd,
                      .offset = 32,
                      .length = 32,
                      .payload_offset = 32,
                      .crc32c = 62,
                      .encoded_crc32c = 63,
                      .encoded_bytes = 20},
                     {.unit = 1,
                      .codec = kDelta,
                      .length = units_[1].bytes,
                      .payload_offset = 52,
                      .crc32c = 64,
                      .encoded_crc32c = 65,
                      .encoded_bytes = 30,
                      .base_crc32c = base.crc32c()},
                     {.unit = kBlob, .length = 10, .payload_offset = 82, .crc32c = 67},
                     {.unit = kGrown, .length = kGrownBytes, .payload_offset = 92, .crc32c = 68}};
    ckpt::WrittenExtent shared{ckpt::as_shared(listed.at(0), ckpt::key_of(first)), {}};
    shared.fragments = {{.unit = 2,
                         .length = same.length(),
                         .payload_offset = same.payload_offset(),
                         .crc32c = same.crc32c()}};
    const ckpt::WrittenBases bases = {{{1, 0},
                                       {.segment = shared.segment,
                                        .extent_offset = shared.offset,
                                        .payload_offset = base.payload_offset(),
                                        .crc32c = base.crc32c(),
                                        .codec = kZstd,
                                        .encoded_crc32c = 66,
                                        .encoded_bytes = 40,
                                        .deltas = 3}}};
    fb::CommittedT commit;
    ckpt::set_key(commit, {.run = kTestRun, .lineage = 1, .step = kSecond});
    commit.plan = fb::Hash(81, 82);
    commit.expert_tokens = {fb::ExpertTokens(1, 2, 900), fb::ExpertTokens(1, 3, 800)};
    commit.expert_lost = {fb::ExpertTokens(1, 3, 70)};
    commit.alarms = {fb::Alarm(1, fb::AlarmKind::Unchanged, 7)};
    commit.blobs.push_back(std::make_unique<fb::BlobT>());
    commit.blobs.back()->id = kBlob;
    commit.blobs.back()->name = "rng";
    commit.blobs.back()->bytes = 10;
    commit.blobs.back()->global = true;
    commit.grown.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(grown_unit(), kGrown)));
    ckpt::fill_extents({own, shared}, commit, bases);
    std::ranges::stable_sort(commit.fragments, {}, &fb::Fragment::unit);  // as the catalog does
    return filled(commit, writer_of_extent("extents[0]"));
  }

  // The fields that differ, a line each.
  static std::string changes(const Fields& found, const Fields& expected) {
    std::string lines;
    for (const auto& [path, value] : expected) {
      const auto other = found.find(path);
      if (other != found.end() && other->second == value) continue;
      lines +=
          path + ": " + (other == found.end() ? "none" : other->second) + ", not " + value + "\n";
    }
    for (const auto& [path, value] : found) {
      if (!expected.contains(path)) lines += path + ": " + value + ", not none\n";
    }
    return lines;
  }

  ckpt::test::Reflected schema_{CKPT_RECORDS_SCHEMA, "ckpt.fb.Committed"};
  const std::vector<ckpt::UnitSpec> units_ = test_units(1, 1);  // weights, optimizer, trainer
  MemoryRoom room_;
  Catalog catalog_{room_.open()};
  std::vector<fb::RecordT> records_;
  size_t begun_ = 0;  // records before the commits
};

// If this fails, a field of a struct was added that second_commit() leaves at zero.
TEST_F(CommitFieldsTest, TheSampleUsesEveryDeclaredField) {
  const auto used = schema_.used(bytes_of(*records_.back().body.AsCommitted()));
  EXPECT_EQ(used, schema_.declared());
  for (const char* table : {"Committed", "Extent", "Metric", "Blob"}) {
    EXPECT_EQ(used.contains(std::string("ckpt.fb.") + table + ".test_only"), CKPT_FIELD_ADDED == 1);
  }
}

TEST_F(CommitFieldsTest, SurvivesTheJournal) {
  const auto read = through_journal(records_);
  ASSERT_EQ(read.size(), records_.size());
  EXPECT_EQ(fields(*read.back().body.AsCommitted()), original(kSecond));
  const auto again = ckpt::decode_commit(ckpt::encode_commit(*read.back().body.AsCommitted()));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(fields(*again), original(kSecond));
}

TEST_F(CommitFieldsTest, SurvivesTheCatalog) {
  const Catalog reopened(room_.open());
  for (const ckpt::Step step : {kFirst, kSecond}) {
    EXPECT_EQ(changes(in(catalog_, step), original(step)), "");
    EXPECT_EQ(changes(in(reopened, step), original(step)), "");
  }
}

TEST_F(CommitFieldsTest, SurvivesARebuild) {
  ASSERT_TRUE(catalog_.clear().ok());
  apply_all(catalog_, through_journal(records_));
  for (const ckpt::Step step : {kFirst, kSecond})
    EXPECT_EQ(changes(in(catalog_, step), original(step)), "");
}

TEST_F(CommitFieldsTest, SurvivesASalvage) {
  const auto salvage = take_salvage(catalog_, begun_);
  ASSERT_TRUE(salvage.ok()) << salvage.error().message;
  ASSERT_EQ(salvage->commits.size(), 2u);
  std::vector<fb::RecordT> records(records_.begin(),
                                   records_.begin() + static_cast<ptrdiff_t>(begun_));
  for (const Salvage::Commit& commit : salvage->commits) {
    records.push_back(make_record(commit.record));
  }
  Catalog salvaged(make_memory_store());
  apply_all(salvaged, through_journal(records));
  for (const ckpt::Step step : {kFirst, kSecond})
    EXPECT_EQ(changes(in(salvaged, step), original(step)), "");
}

TEST_F(CommitFieldsTest, SharedExtentsKeepEveryField) {
  const fb::CommittedT& first = *records_[begun_].body.AsCommitted();
  const fb::CommittedT& second = *records_[begun_ + 1].body.AsCommitted();
  fb::CommittedT written;
  written.extents.push_back(std::make_unique<fb::ExtentT>(*first.extents.at(0)));
  fb::CommittedT shared;
  shared.extents.push_back(std::make_unique<fb::ExtentT>(*second.extents.at(1)));
  const ckpt::SnapshotKey key = ckpt::key_of(second);
  EXPECT_EQ(ckpt::writer_of(*shared.extents.at(0), key), ckpt::key_of(first));
  EXPECT_EQ(ckpt::writer_of(*second.extents.at(0), key), key);
  const Fields expected = fields(written);
  Fields found = fields(shared);
  for (const std::string& path : writer_of_extent("extents[0]")) found.erase(path);
  EXPECT_EQ(found, expected);
}

TEST_F(CommitFieldsTest, DeletedCommitKeepsFieldsOfItsRemainingUnits) {
  ASSERT_TRUE(catalog_.apply(records_.size() + 1, deleted({1, kSecond}, "x", {2}, true)).ok());
  fb::CommittedT rest = *records_.back().body.AsCommitted();
  rest.full = false;
  rest.extents.erase(rest.extents.begin());
  const fb::Fragment kept = *std::ranges::find(rest.fragments, 2u, &fb::Fragment::unit);
  rest.fragments = {fb::Fragment(kept.unit(), 0, kept.offset(), kept.length(),
                                 kept.payload_offset(), kept.crc32c(), kept.codec())};
  rest.encoded.clear();
  rest.bases.clear();
  rest.blobs.clear();
  rest.blob_fragments.clear();
  rest.grown.clear();
  EXPECT_EQ(in(catalog_, kSecond), fields(rest));
}

TEST_F(CommitFieldsTest, SalvageKeepsDeletedCommitWithoutItsLists) {
  ASSERT_TRUE(catalog_.apply(records_.size() + 1, deleted({1, kSecond}, "x")).ok());
  EXPECT_FALSE(catalog_.record(kTestRun, 1, kSecond).has_value());
  const auto salvage = take_salvage(catalog_, begun_ + 1);
  ASSERT_TRUE(salvage.ok()) << salvage.error().message;
  ASSERT_EQ(salvage->commits.size(), 1u);
  fb::CommittedT rest = *records_.back().body.AsCommitted();
  rest.full = false;
  ckpt::fill_extents({}, rest);
  rest.blobs.clear();
  rest.grown.clear();
  rest.expert_tokens.clear();
  rest.expert_lost.clear();
  EXPECT_EQ(fields(salvage->commits[0].record), fields(rest));
}

TEST_F(CommitFieldsTest, EncodedBytesIsAnUpperBound) {
  constexpr uint64_t kTimes = 100;
  const fb::CommittedT& sample = *records_.back().body.AsCommitted();
  fb::CommittedT none = sample;
  ckpt::fill_extents({}, none);
  none.expert_tokens.clear();
  none.expert_lost.clear();
  fb::CommittedT many = none;
  for (uint64_t i = 0; i < kTimes; ++i) {
    for (const auto& extent : sample.extents) {
      many.extents.push_back(std::make_unique<fb::ExtentT>(*extent));
    }
    many.fragments.push_back(sample.fragments[1]);
    many.encoded.push_back(sample.encoded[0]);
    many.bases.push_back(sample.bases[0]);
    many.expert_tokens.push_back(sample.expert_tokens[0]);
    many.expert_lost.push_back(sample.expert_lost[0]);
    many.blobs.push_back(std::make_unique<fb::BlobT>(*sample.blobs[0]));
  }
  EXPECT_LE(ckpt::encode_commit(many).size() - ckpt::encode_commit(none).size(),
            ckpt::encoded_bytes({.fragments = kTimes,
                                 .encoded = kTimes,
                                 .bases = kTimes,
                                 .own_extents = kTimes,
                                 .shared_extents = kTimes,
                                 .tokens = 2 * kTimes,
                                 .blobs = kTimes,
                                 .blob_name_bytes = kTimes * sample.blobs[0]->name.size()}));
}

TEST(CommitCodecTest, RefusesRecordOfAnotherKind) {
  const auto decoded = ckpt::decode_commit(ckpt::encode_record(run_created()));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ckpt::ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ckptd
