// Every parser of formats/: what it takes must survive encoding and decoding; what it refuses must
// be refused without harm (the sanitizers watch).
#include <gtest/gtest.h>

#include <cstring>

#include "formats/base/crc32c.h"
#include "formats/base/parse.h"
#include "formats/journal.h"
#include "formats/segment.h"
#include "formats/wire/frame.h"
#include "tests/fuzz/fuzzer.h"

namespace ckpt::fuzz {
namespace {

using Verdict = std::optional<std::string>;

void expect_clean(const Target& target) {
  const auto finding = run(target);
  EXPECT_FALSE(finding.has_value()) << target.name << " seed " << finding->seed << " input "
                                    << finding->input << ": " << finding->what;
}

// Puts the CRC32C of all bytes, its own four counted as zero, where it belongs.
void put_crc32c(Bytes& bytes, size_t at) {
  if (bytes.size() < at + sizeof(uint32_t)) return;
  std::memset(bytes.data() + at, 0, sizeof(uint32_t));
  const uint32_t crc = base::crc32c(bytes);
  std::memcpy(bytes.data() + at, &crc, sizeof(crc));
}

Bytes copy_of(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

fb::BeginSnapshotT sample_begin() {
  fb::BeginSnapshotT begin;
  begin.request = 3;
  begin.step = 1200;
  for (uint32_t unit = 0; unit < 6; ++unit) {
    begin.units.push_back(unit);
    begin.fragments.emplace_back(unit, 0, 4096 * unit, 4096);
  }
  return begin;
}

fb::RegisterUnitsT sample_units() {
  fb::RegisterUnitsT message;
  message.metadata = R"({"model":"tiny"})";
  for (uint32_t i = 0; i < 3; ++i) {
    auto unit = std::make_unique<fb::UnitT>();
    unit->id = i;
    unit->name = fmt::format("layers.0.experts.{}", i);
    unit->bytes = 64;
    auto tensor = std::make_unique<fb::TensorT>();
    tensor->name = "w1";
    tensor->shape = {4, 4};
    unit->tensors.push_back(std::move(tensor));
    message.units.push_back(std::move(unit));
  }
  return message;
}

TEST(FormatsFuzz, Frames) {
  fb::SealSlabT seal;
  seal.payload_bytes = 8192;
  seal.fragments.emplace_back(1, 0x1234u, 0, 4096, 0);
  fb::HelloT hello;
  hello.run = "tiny";
  hello.client = "fuzz";
  expect_clean({.name = "frame",
                .corpus = {wire::encode(hello), wire::encode(seal), wire::encode(sample_begin()),
                           wire::encode(sample_units())},
                .feed = [](ByteView bytes) -> Verdict {
                  wire::FrameReader reader;
                  reader.append(bytes);
                  while (true) {
                    auto message = reader.next();
                    if (!message.ok() || !*message) return std::nullopt;
                    auto again = wire::try_encode(**message);
                    if (!again.ok())
                      return "a message that was read cannot be written: " + again.error().message;
                    if (!wire::decode(*again).ok()) return "what was written of it cannot be read";
                  }
                },
                .repair =
                    [](Bytes& bytes) {
                      if (bytes.size() <= wire::kFrameHeaderBytes) return;
                      const auto payload = ByteView(bytes).subspan(wire::kFrameHeaderBytes);
                      const auto length = static_cast<uint32_t>(payload.size());
                      const uint32_t crc = base::crc32c(payload);
                      std::memcpy(bytes.data() + 4, &length, sizeof(length));
                      std::memcpy(bytes.data() + 8, &crc, sizeof(crc));
                    }});
}

fb::RecordT committed_record() {
  fb::CommittedT commit;
  commit.run = 1;
  commit.step = 5;
  commit.extents.push_back(std::make_unique<fb::ExtentT>());
  for (uint32_t unit = 0; unit < 4; ++unit) {
    commit.fragments.emplace_back(unit, 0, 0, 4096, 4096 * unit, 7, 0);
  }
  fb::RecordT record;
  record.body.Set(std::move(commit));
  return record;
}

fb::RecordT opened_record() {
  fb::StoreOpenedT opened;
  opened.time_ns = 1;
  opened.format_version = kStoreFormatVersion;
  fb::RecordT record;
  record.body.Set(std::move(opened));
  return record;
}

TEST(FormatsFuzz, Records) {
  expect_clean({.name = "record",
                .corpus = {encode_record(committed_record()), encode_record(opened_record())},
                .feed = [](ByteView bytes) -> Verdict {
                  const auto record = decode_record(bytes);
                  if (!record.ok()) return std::nullopt;
                  if (!decode_record(encode_record(*record)).ok()) return "does not survive";
                  return std::nullopt;
                },
                .repair = {}});
}

TEST(FormatsFuzz, Journals) {
  JournalEncoder encoder;
  std::vector<fb::RecordT> first;
  first.push_back(opened_record());
  std::vector<fb::RecordT> second;
  second.push_back(committed_record());
  second.push_back(committed_record());
  Bytes journal = encoder.encode(first).bytes;
  const Bytes tail = encoder.encode(second).bytes;
  journal.insert(journal.end(), tail.begin(), tail.end());
  const size_t whole = journal.size();
  expect_clean({.name = "journal",
                .corpus = {journal, tail},
                .feed = [whole](ByteView bytes) -> Verdict {
                  uint64_t last = 0;
                  bool ordered = true;
                  const auto scan = scan_journal(bytes, [&](uint64_t sequence, const fb::RecordT&) {
                    ordered = ordered && sequence == last + 1;
                    last = sequence;
                    return ok_status();
                  });
                  if (!ordered) return "records are out of order";
                  if (!scan.ok()) return std::nullopt;
                  if (scan->end.offset > bytes.size()) return "ends beyond its end";
                  if (scan->end.next_sequence != last + 1) return "loses count";
                  if (last > 3 && bytes.size() <= whole) return "has records never written";
                  return std::nullopt;
                },
                .repair = {}});
}

TEST(FormatsFuzz, SegmentHeaders) {
  Bytes block(4096);
  encode_segment_header({.store = {1, 2}, .segment = 3, .bytes = 1u << 30, .created_ns = 4}, block);
  expect_clean({.name = "segment header",
                .corpus = {block},
                .feed = [](ByteView bytes) -> Verdict {
                  if (bytes.size() < 4096) return std::nullopt;  // callers read a whole block
                  const auto header = decode_segment_header(bytes.first(4096));
                  if (!header.ok()) return std::nullopt;
                  Bytes again(4096);
                  encode_segment_header(*header, again);
                  if (again != copy_of(bytes.first(4096))) return "does not survive";
                  return std::nullopt;
                },
                .repair = [](Bytes& bytes) { put_crc32c(bytes, 12); }});
}

TEST(FormatsFuzz, ExtentHeaders) {
  ExtentHeader header{.store = {1, 2}, .segment = 3, .offset = 4096, .payload_bytes = 64 << 10};
  for (uint32_t unit = 0; unit < 5; ++unit) {
    header.fragments.push_back({.unit = unit, .length = 4096, .payload_offset = 8192 * unit});
  }
  Bytes bytes(extent_header_bytes(header.fragments.size()));
  encode_extent_header(header, bytes);
  expect_clean({.name = "extent header",
                .corpus = {bytes},
                .feed = [](ByteView input) -> Verdict {
                  if (input.size() < 4096) return std::nullopt;  // callers read a whole block
                  const auto decoded = decode_extent_header(input);
                  if (!decoded.ok()) return std::nullopt;
                  Bytes again(extent_header_bytes(decoded->fragments.size()));
                  encode_extent_header(*decoded, again);
                  const auto twice = decode_extent_header(again);
                  if (!twice.ok() || *twice != *decoded) return "does not survive";
                  return std::nullopt;
                },
                .repair = [](Bytes& input) { put_crc32c(input, 12); }});
}

TEST(FormatsFuzz, SizesAndDurations) {
  expect_clean({.name = "size and duration",
                .corpus = {copy_of(as_bytes("1.5GiB")), copy_of(as_bytes("64KiB")),
                           copy_of(as_bytes("250us")), copy_of(as_bytes("18446744073709551615"))},
                .feed = [](ByteView bytes) -> Verdict {
                  const auto size = base::parse_size(as_text(bytes));
                  if (size.ok() && *size != 0 && bytes.empty()) return "a size out of nothing";
                  const auto duration = base::parse_duration(as_text(bytes));
                  if (duration.ok() && duration->count() < 0) return "a negative duration";
                  return std::nullopt;
                },
                .repair = {}});
}

}  // namespace
}  // namespace ckpt::fuzz
