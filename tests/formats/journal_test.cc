#include "formats/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/journal_record.h"
#include "tests/formats/random_bytes.h"
#include "tests/formats/samples.h"

namespace ckpt {
namespace {

using ::testing::HasSubstr;

struct Scanned {
  Result<JournalScan> scan;
  std::vector<std::vector<std::byte>> records;
};
Scanned scan(ByteView image) {
  std::vector<std::vector<std::byte>> records;
  uint64_t expected = 1;
  auto result = scan_journal(image, [&](uint64_t sequence, const fb::RecordT& record) {
    EXPECT_EQ(sequence, expected++);
    records.push_back(encode_record(record));
    return ok_status();
  });
  return {std::move(result), std::move(records)};
}
std::string scan_error(ByteView image) {
  const Scanned scanned = scan(image);
  return scanned.scan.ok() ? "none" : scanned.scan.error().message;
}

// Applies `change` to the header of the record at `offset` and makes its checksum right again.
template <typename Change>
void change_header(std::vector<std::byte>& image, uint64_t offset, Change change) {
  auto header = base::load<journal::RecordHeader>(image.data() + offset);
  change(header);
  header.header_crc32c = journal::crc32c_of(header);
  base::store(image.data() + offset, header);
}

TEST(Journal, ScanReturnsWrittenRecords) {
  const test::SampleJournal journal = test::sample_journal();
  const Scanned scanned = scan(journal.image);
  EXPECT_EQ(scanned.records.size(), 7u);
  EXPECT_EQ(scanned.records[1], encode_record(test::sample_run_created("{}")));
  EXPECT_EQ(scanned.scan->torn_bytes, 0u);
  EXPECT_EQ(scanned.scan->end.offset, journal.image.size());
  EXPECT_EQ(scanned.scan->end.next_sequence, 8u);
  EXPECT_EQ(scanned.scan->end.next_batch, 5u);
  EXPECT_EQ(scanned.scan->end.chain, journal.end.chain);
  EXPECT_EQ(scanned.scan->end.salt, 0x5a17u);
}

TEST(Journal, EncoderContinuesAtEndOfScan) {
  test::SampleJournal journal = test::sample_journal();
  for (int opening = 0; opening < 3; ++opening) {
    JournalEncoder encoder(scan(journal.image).scan->end);
    std::vector<fb::RecordT> records(1);
    records[0] = test::sample_store_opened();
    const JournalEncoder::Batch batch = encoder.encode(records);
    EXPECT_EQ(batch.offset, journal.image.size());
    journal.image.insert(journal.image.end(), batch.bytes.begin(), batch.bytes.end());
  }
  EXPECT_EQ(scan(journal.image).records.size(), 10u);
}

TEST(Journal, ZeroedFileIsEmpty) {
  for (const size_t size : {0u, 100u, 4096u, 100'000u}) {
    const Scanned scanned = scan(std::vector<std::byte>(size));
    ASSERT_TRUE(scanned.scan.ok());
    EXPECT_EQ(scanned.scan->end.offset, 0u);
    EXPECT_EQ(scanned.scan->end.next_batch, 1u);
    EXPECT_EQ(scanned.scan->torn_bytes, 0u);
  }
}

TEST(Journal, PreallocatedZerosAtEndAreNoDamage) {
  test::SampleJournal journal = test::sample_journal();
  journal.image.resize(journal.image.size() + 100'000);
  const Scanned scanned = scan(journal.image);
  EXPECT_EQ(scanned.records.size(), 7u);
  EXPECT_EQ(scanned.scan->torn_bytes, 0u);
}

// Torn write of the last batch: any of its sectors of 512 bytes may be missing.
TEST(Journal, PropertyTornLastBatchIsDroppedWhole) {
  const test::SampleJournal journal = test::sample_journal();
  const uint64_t begin = journal.batch_offsets[2];
  const uint64_t end = journal.batch_offsets[3];
  const std::vector<std::byte> before_write = test::random_bytes(end - begin, 5);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    std::vector<std::byte> image(journal.image.begin(),
                                 journal.image.begin() + static_cast<ptrdiff_t>(end));
    bool lost_any = false;
    for (uint64_t at = begin; at < end; at += 512) {
      if (random() % 3 != 0) continue;
      const bool zeros = seed % 2 == 0;
      for (uint64_t i = at; i < at + 512; ++i) {
        const std::byte old = zeros ? std::byte{0} : before_write[i - begin];
        lost_any = lost_any || image[i] != old;
        image[i] = old;
      }
    }
    const Scanned scanned = scan(image);
    ASSERT_TRUE(scanned.scan.ok()) << scanned.scan.error().message;
    EXPECT_EQ(scanned.records.size(), lost_any ? 4u : 6u);
    EXPECT_EQ(scanned.scan->end.offset, lost_any ? begin : end);
  }
}

// A torn write over the remains of an earlier torn write with the same batch number.
TEST(Journal, TwoTornWritesNeverMakeBatch) {
  const test::SampleJournal journal = test::sample_journal();
  const Scanned before = scan(ByteView(journal.image).first(journal.batch_offsets[2]));
  std::vector<std::vector<std::byte>> attempts;
  for (const char fill : {'a', 'b'}) {
    std::vector<fb::RecordT> records(4);
    for (fb::RecordT& record : records) {
      record = test::sample_run_created(std::string(3900, fill));
    }
    attempts.push_back(JournalEncoder(before.scan->end).encode(records).bytes);
  }
  ASSERT_EQ(attempts[0].size(), attempts[1].size());
  for (size_t cut = 512; cut < attempts[0].size(); cut += 512) {
    std::vector<std::byte> image(
        journal.image.begin(),
        journal.image.begin() + static_cast<ptrdiff_t>(journal.batch_offsets[2]));
    const auto middle = static_cast<ptrdiff_t>(cut);
    image.insert(image.end(), attempts[1].begin(), attempts[1].begin() + middle);
    image.insert(image.end(), attempts[0].begin() + middle, attempts[0].end());
    const Scanned scanned = scan(image);
    ASSERT_TRUE(scanned.scan.ok()) << cut << scanned.scan.error().message;
    EXPECT_EQ(scanned.records.size(), 4u) << cut;
  }
}

TEST(Journal, DamageInMiddleNamesOffset) {
  const test::SampleJournal journal = test::sample_journal();
  std::vector<std::byte> image = journal.image;
  image[journal.batch_offsets[1] + sizeof(journal::RecordHeader) + 8] ^= std::byte{4};
  const Scanned scanned = scan(image);
  ASSERT_FALSE(scanned.scan.ok());
  EXPECT_EQ(scanned.scan.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(scanned.scan.error().message,
            fmt::format("journal at offset {}: record 0 of the batch has a body that does not "
                        "match its checksum, yet batch 3 follows at offset {}",
                        journal.batch_offsets[1], journal.batch_offsets[2]));
}

// If any block is damaged, the rest is read, and the gap in the numbers shows the lost records.
TEST(Journal, PropertyScanContinuesBehindDamage) {
  const test::SampleJournal journal = test::sample_journal();
  const std::vector<std::vector<std::byte>> whole = scan(journal.image).records;
  for (uint64_t at = 100; at < journal.batch_offsets[3]; at += kBlockBytes) {
    SCOPED_TRACE(at);
    std::vector<std::byte> image = journal.image;
    image[at] ^= std::byte{4};
    const ReadJournal read = [&](uint64_t offset, uint64_t bytes) -> Result<ByteView> {
      return ByteView(image).subspan(offset, bytes);
    };
    std::vector<JournalGap> gaps;
    uint64_t expected = 1;
    const auto scanned = scan_damaged_journal(
        image.size(), read,
        [&](uint64_t sequence, const fb::RecordT& record) {
          EXPECT_EQ(sequence, expected++);
          EXPECT_EQ(encode_record(record), whole[sequence - 1]);
          return ok_status();
        },
        [&](const JournalGap& gap) {
          EXPECT_EQ(gap.before.next_sequence, expected);
          expected = gap.next_sequence;
          gaps.push_back(gap);
        });
    ASSERT_TRUE(scanned.ok());
    ASSERT_EQ(gaps.size(), 1u);
    EXPECT_EQ(gaps[0].reason, scan_error(image));
    EXPECT_LE(gaps[0].before.offset, at);
    EXPECT_EQ(expected, 8u) << "to the end";
    EXPECT_EQ(scanned->end.chain, journal.end.chain);
  }
}

// The result does not depend on the sizes of the pieces, also for a damaged journal.
TEST(Journal, PropertyAJournalIsCheckedInPieces) {
  const test::SampleJournal journal = test::sample_journal();
  const auto check = [](ByteView image, uint64_t piece) -> Result<JournalEncoder::Position> {
    JournalEncoder::Position at;
    uint64_t wanted = piece;
    while (at.offset < image.size()) {
      const uint64_t bytes = std::min(wanted, image.size() - at.offset);
      CKPT_ASSIGN(const uint64_t next, check_journal_piece(image.subspan(at.offset, bytes), at));
      wanted = std::max(piece, next);
    }
    return at;
  };
  for (uint64_t piece = kBlockBytes; piece <= journal.image.size(); piece += kBlockBytes) {
    const auto whole = check(journal.image, piece);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    EXPECT_EQ(whole->chain, journal.end.chain);
    EXPECT_EQ(whole->next_sequence, 8u);
    for (size_t batch = 0; batch + 1 < journal.batch_offsets.size(); ++batch) {
      std::vector<std::byte> image = journal.image;
      image[journal.batch_offsets[batch] + 100] ^= std::byte{4};
      const auto damaged = check(image, piece);
      ASSERT_FALSE(damaged.ok());
      EXPECT_THAT(damaged.error().message,
                  HasSubstr(fmt::format("offset {}", journal.batch_offsets[batch])));
    }
  }
}

TEST(Journal, ZeroedBlockInMiddleIsRefused) {
  const test::SampleJournal journal = test::sample_journal();
  for (size_t batch = 0; batch + 1 < 4; ++batch) {
    std::vector<std::byte> image = journal.image;
    std::fill_n(image.begin() + static_cast<ptrdiff_t>(journal.batch_offsets[batch]), 4096,
                std::byte{0});
    EXPECT_THAT(scan_error(image),
                HasSubstr(fmt::format("journal at offset {}", journal.batch_offsets[batch])));
  }
}

TEST(Journal, MissingOrExchangedBatchIsRefused) {
  const test::SampleJournal journal = test::sample_journal();
  const auto offset = [&](size_t i) { return static_cast<ptrdiff_t>(journal.batch_offsets[i]); };
  std::vector<std::byte> image = journal.image;
  image.erase(image.begin() + offset(1), image.begin() + offset(2));
  EXPECT_THAT(scan_error(image), HasSubstr("batch 3 where batch 2 should be"));

  // Equal place, number and salt, but of another history.
  JournalEncoder::Position start;
  start.salt = 0x5a17;
  JournalEncoder other(start);
  std::vector<fb::RecordT> records(1);
  records[0] = test::sample_run_created("other");
  image = journal.image;
  const std::vector<std::byte> exchanged = other.encode(records).bytes;
  std::copy(exchanged.begin(), exchanged.end(), image.begin());
  EXPECT_THAT(scan_error(image), HasSubstr("does not follow from the records before it"));
}

TEST(Journal, MisdirectedBatchIsRefused) {
  const test::SampleJournal journal = test::sample_journal();
  std::vector<std::byte> image = journal.image;
  change_header(image, journal.batch_offsets[2],
                [](journal::RecordHeader& header) { header.offset += 4096; });
  EXPECT_THAT(scan_error(image), HasSubstr("holds what was written for offset"));
  image = journal.image;
  change_header(image, journal.batch_offsets[2],
                [](journal::RecordHeader& header) { header.sequence += 1; });
  EXPECT_THAT(scan_error(image), HasSubstr("record 6 where record 5 should be"));
}

// A trainer's metadata may hold any bytes. Those of a record of a later batch, at a block boundary,
// must not make a torn tail look like damage: the daemon would refuse to start.
TEST(Journal, RecordsPlantedInBodyAreIgnored) {
  journal::RecordHeader planted{.magic = journal::kRecordMagic, .batch = 1000, .salt = 0};
  planted.header_crc32c = journal::crc32c_of(planted);
  std::string metadata(20'000, '\0');
  for (size_t at = 0; at + sizeof(planted) <= metadata.size(); at += 8) {
    if (at % 4096 == 0) std::memcpy(metadata.data() + at, &planted, sizeof(planted));
  }
  for (size_t shift = 0; shift < 4096; shift += 8) {
    JournalEncoder::Position start;
    start.salt = 0x5a17;
    JournalEncoder encoder(start);
    std::vector<fb::RecordT> records(1);
    records[0] = test::sample_store_opened();
    std::vector<std::byte> image = encoder.encode(records).bytes;
    records[0] = test::sample_run_created(std::string(shift, 'x') + metadata);
    const std::vector<std::byte> batch = encoder.encode(records).bytes;
    image.insert(image.end(), batch.begin(), batch.end());
    std::fill_n(image.begin() + 4096, 4096, std::byte{0});  // the first block was not written
    const Scanned scanned = scan(image);
    ASSERT_TRUE(scanned.scan.ok()) << shift << scanned.scan.error().message;
    EXPECT_EQ(scanned.records.size(), 1u);
  }
}

TEST(Journal, BrokenBodyWithValidChecksumIsRefused) {
  const test::SampleJournal journal = test::sample_journal();
  std::vector<std::byte> image = journal.image;
  const uint64_t at = journal.batch_offsets[3];
  auto header = base::load<journal::RecordHeader>(image.data() + at);
  const uint64_t bytes = base::align_up(header.body_bytes, 8);
  const MutableByteView body = MutableByteView(image).subspan(at + sizeof(header), bytes);
  body[0] ^= std::byte{0xff};
  change_header(image, at, [&](journal::RecordHeader& h) { h.body_crc32c = base::crc32c(body); });
  EXPECT_THAT(scan_error(image),
              HasSubstr(fmt::format("journal at offset {}: record: its structure is broken", at)));
}

TEST(Journal, ErrorOfReaderEndsScan) {
  int calls = 0;
  const Result<JournalScan> result =
      scan_journal(test::sample_journal().image, [&](uint64_t, const fb::RecordT&) -> Status {
        if (++calls == 2) return make_error(ErrorCode::kVersionMismatch, "store of version 9");
        return ok_status();
      });
  EXPECT_EQ(result.error().message, "store of version 9");
  EXPECT_EQ(calls, 2);
}

// The table of a commit as in version 3 of the store, which had no codecs either.
TEST(Record, CommitWithoutLostTokensKeepsOlderFormat) {
  fb::RecordT record = test::sample_committed(5, 1);
  const size_t bytes = encode_record(record).size();
  record.body.AsCommitted()->expert_lost.clear();
  record.body.AsCommitted()->encoded.clear();
  record.body.AsCommitted()->bases.clear();
  record.body.AsCommitted()->blobs.clear();
  record.body.AsCommitted()->blob_fragments.clear();
  record.body.AsCommitted()->grown.clear();
  const std::vector<std::byte> older = encode_record(record);
  EXPECT_LT(older.size(), bytes);
  const fb::Record& root = *fb::GetRecord(older.data());
  constexpr auto kFieldsOfVersion3 = 14;
  const auto* table = reinterpret_cast<const flatbuffers::Table*>(root.body_as_Committed());
  EXPECT_LE(flatbuffers::ReadScalar<flatbuffers::voffset_t>(table->GetVTable()),
            flatbuffers::FieldIndexToOffset(kFieldsOfVersion3));
  const auto back = decode_record(older);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->body.AsCommitted()->expert_tokens.size(), 2u);
  EXPECT_TRUE(back->body.AsCommitted()->expert_lost.empty());
}

TEST(Record, UnknownKindIsVersionMismatch) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body = fb::CreateStoreClosed(builder, 1);
  fb::FinishRecordBuffer(builder,
                         fb::CreateRecord(builder, static_cast<fb::RecordBody>(200), body.Union()));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  EXPECT_EQ(decode_record({bytes, builder.GetSize()}).error().code, ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace ckpt
