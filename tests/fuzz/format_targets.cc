#include <algorithm>

#include "formats/base/crc32c.h"
#include "formats/base/parse.h"
#include "formats/journal_record.h"
#include "formats/keep_rules.h"
#include "formats/ledger.h"
#include "formats/safetensors.h"
#include "formats/wire/convert.h"
#include "tests/formats/samples.h"
#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

// ---- frame and the units inside it ------------------------------------------------------------

std::vector<Bytes> frame_seeds() {
  std::vector<Bytes> seeds;
  for (const fb::MessageT& message : test::one_message_of_each_kind()) {
    seeds.push_back(wire::encode(message));
  }
  seeds.push_back(wire::encode(test::sample_hello()));
  seeds.push_back(wire::encode(test::sample_register_units(5)));
  seeds.push_back(wire::encode(test::sample_begin_snapshot()));
  return seeds;
}

void frame_repair(Bytes& bytes) {
  if (bytes.size() <= wire::kFrameHeaderBytes) return;
  const ByteView payload = ByteView(bytes).subspan(wire::kFrameHeaderBytes);
  std::memcpy(bytes.data(), "CKP1", 4);
  base::store(bytes.data() + 4, static_cast<uint32_t>(payload.size()));
  base::store(bytes.data() + 8, base::crc32c(payload));
  base::store(bytes.data() + 12, uint32_t{0});
}

bool frame_parse(ByteView bytes) {
  const Result<fb::MessageT> message = wire::decode(bytes);
  wire::FrameReader reader;
  reader.append(bytes);
  const Result<std::optional<fb::MessageT>> read = reader.next();
  // A reader takes one frame and leaves what follows; a lone frame must be the whole input.
  if (message.ok()) CKPT_ASSERT(read.ok() && read->has_value());
  if (!message.ok()) return false;
  const Bytes again = wire::encode(*message);
  CKPT_ASSERT(wire::encode(wire::decode(again).value()) == again);
  if (const fb::RegisterUnitsT* units = message->body.AsRegisterUnits()) {
    for (const auto& unit : units->units) {
      const Result<UnitSpec> spec = wire::from_fb(*unit);
      if (spec.ok()) CKPT_ASSERT(wire::from_fb(wire::to_fb(*spec, 0)).value() == *spec);
    }
  }
  return true;
}

// ---- journal ----------------------------------------------------------------------------------

std::vector<Bytes> record_seeds() {
  std::vector<Bytes> seeds = {encode_record(test::sample_store_opened()),
                              encode_record(test::sample_run_created("{}")),
                              encode_record(test::sample_committed(5, 4))};
  for (const fb::RecordT& record : test::sample_retention_records()) {
    seeds.push_back(encode_record(record));
  }
  return seeds;
}
bool record_parse(ByteView bytes) {
  const Result<fb::RecordT> record = decode_record(bytes);
  if (!record.ok()) return false;
  const Bytes again = encode_record(*record);
  CKPT_ASSERT(encode_record(decode_record(again).value()) == again);
  if (const fb::RulesSetT* set = record->body.AsRulesSet()) {
    const Result<KeepRules> rules = from_fb(*set);
    if (rules.ok()) CKPT_ASSERT(from_fb(to_fb(*rules)).value() == *rules);
  }
  return true;
}

std::vector<Bytes> journal_seeds() {
  Bytes image = test::sample_journal().image;
  Bytes longer = image;
  longer.resize(longer.size() + 3 * kBlockBytes);
  return {std::move(image), std::move(longer)};
}
// Walks the records as their (possibly mutated) lengths say, and makes checksums and chain right.
void journal_repair(Bytes& bytes) {
  base::Hash128 chain;
  uint64_t at = 0;
  while (base::range_fits(at, sizeof(journal::RecordHeader), bytes.size())) {
    auto header = base::load<journal::RecordHeader>(bytes.data() + at);
    const uint64_t record_bytes = journal::record_bytes(header.body_bytes);
    if (header.magic != journal::kRecordMagic ||
        !base::range_fits(at, record_bytes, bytes.size())) {
      at = base::align_up(at + 1, kBlockBytes);
      continue;
    }
    const ByteView record = ByteView(bytes).subspan(at, record_bytes);
    header.body_crc32c = base::crc32c(record.subspan(sizeof(header)));
    header.chain = chain;
    header.header_crc32c = journal::crc32c_of(header);
    base::store(bytes.data() + at, header);
    chain = journal::chain_after(record);
    at += record_bytes;
  }
}
bool journal_parse(ByteView bytes) {
  std::vector<Bytes> records;
  const Result<JournalScan> scan =
      scan_journal(bytes, [&](uint64_t sequence, const fb::RecordT& record) {
        records.push_back(encode_record(record));
        CKPT_ASSERT(sequence == records.size());
        return ok_status();
      });
  if (!scan.ok()) return false;
  CKPT_ASSERT(scan->end.offset <= bytes.size());
  CKPT_ASSERT(base::is_aligned(scan->end.offset, kBlockBytes));
  CKPT_ASSERT(scan->torn_bytes <= bytes.size() - scan->end.offset);
  CKPT_ASSERT(scan->end.next_sequence == records.size() + 1);
  // The journal truncated at the end of the scan has the same records and no torn write.
  size_t count = 0;
  const Result<JournalScan> again =
      scan_journal(bytes.first(scan->end.offset), [&](uint64_t, const fb::RecordT& record) {
        CKPT_ASSERT(encode_record(record) == records[count++]);
        return ok_status();
      });
  CKPT_ASSERT(again.ok() && again->torn_bytes == 0 && count == records.size());
  return true;
}

// ---- segments ---------------------------------------------------------------------------------

void repair_crc_at_12(Bytes& bytes, size_t covered) {
  if (bytes.size() < std::max<size_t>(covered, 16)) return;
  base::store(bytes.data() + 12, uint32_t{0});
  base::store(bytes.data() + 12, base::crc32c(ByteView(bytes).first(covered)));
}

std::vector<Bytes> segment_seeds() { return {test::encoded(test::sample_segment_header())}; }
void segment_repair(Bytes& bytes) { repair_crc_at_12(bytes, kBlockBytes); }
bool segment_parse(ByteView bytes) {
  const Result<SegmentHeader> header = decode_segment_header(bytes);
  if (!header.ok()) return false;
  // The format is canonical: what is accepted is exactly what would be written.
  const Bytes again = test::encoded(*header);
  CKPT_ASSERT(std::equal(again.begin(), again.end(), bytes.begin()));
  return true;
}

std::vector<Bytes> extent_seeds() {
  return {test::encoded(test::sample_extent_header(1)),
          test::encoded(test::sample_extent_header(3)),
          test::encoded(test::sample_extent_header(120)),
          test::encoded(test::sample_encoded_extent_header(3)),
          test::encoded(test::sample_delta_extent_header(3))};
}
void extent_repair(Bytes& bytes) {
  if (bytes.size() < kBlockBytes) return;
  const uint64_t covered = base::load<uint32_t>(bytes.data() + 16);
  if (covered <= bytes.size()) repair_crc_at_12(bytes, covered);
}
bool extent_parse(ByteView bytes) {
  const Result<ExtentHeader> header = decode_extent_header(bytes);
  if (!header.ok()) return false;
  const Bytes again = test::encoded(*header);
  CKPT_ASSERT(again.size() <= bytes.size());
  CKPT_ASSERT(std::equal(again.begin(), again.end(), bytes.begin()));
  payload_crc32c(header->fragments, base::align_up(header->payload_bytes, kBlockBytes));
  return true;
}

std::vector<Bytes> ledger_seeds() {
  Bytes block(kBlockBytes);
  encode_ledger_header({.store = {.low = 1, .high = 2},
                        .arena = 7,
                        .arena_inode = 99,
                        .layout = {.slab_bytes = 1u << 20, .slab_count = 8},
                        .uid = 1000},
                       block);
  return {block};
}
bool ledger_parse(ByteView bytes) {
  const Result<LedgerHeader> header = decode_ledger_header(bytes);
  if (!header.ok()) return false;
  Bytes again(kBlockBytes);
  encode_ledger_header(*header, again);
  CKPT_ASSERT(std::equal(again.begin(), again.end(), bytes.begin()));
  const uint32_t last = header->layout.slab_count - 1;
  CKPT_ASSERT(ledger_slot_offset(header->layout, LedgerTable::kDurable, last) +
                  ledger_slot_bytes() ==
              ledger_bytes(header->layout));
  return true;
}

// ---- safetensors ------------------------------------------------------------------------------

std::vector<Bytes> safetensors_seeds() {
  return {
      test::safetensors_file("{}", 0),
      test::safetensors_file(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],)"
          R"("data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[],"data_offsets":[16,18]}} )",
          18),
      safetensors::make_header({{.name = "e", .dtype = DType::kI64, .shape = {0, 3}}}, {}).value()};
}
// Sets the header length to that of the JSON up to its last brace.
void safetensors_repair(Bytes& bytes) {
  if (bytes.size() < safetensors::kLengthBytes) return;
  const std::string_view text = as_text(ByteView(bytes).subspan(safetensors::kLengthBytes));
  base::store(bytes.data(), uint64_t{text.rfind('}') + 1});
}
bool safetensors_parse(ByteView bytes) {
  const Result<safetensors::Header> header = safetensors::parse_header(bytes, bytes.size());
  if (!header.ok()) return false;
  const Result<Bytes> written = safetensors::make_header(header->tensors, header->metadata);
  CKPT_ASSERT(written.ok());
  const Result<safetensors::Header> again =
      safetensors::parse_header(*written, written->size() + header->data_bytes);
  CKPT_ASSERT(again.ok());
  CKPT_ASSERT(again->tensors.size() == header->tensors.size());
  CKPT_ASSERT(again->metadata == header->metadata);
  return true;
}

// ---- sizes and durations on command lines -----------------------------------------------------

std::vector<Bytes> size_seeds() {
  std::vector<Bytes> seeds;
  for (const std::string_view text : {"1.5GiB", "64KiB", "18446744073709551615", "250us", "1d"}) {
    const ByteView bytes = as_bytes(text);
    seeds.emplace_back(bytes.begin(), bytes.end());
  }
  return seeds;
}
bool size_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const Result<uint64_t> size = base::parse_size(text);
  const Result<std::chrono::nanoseconds> duration = base::parse_duration(text);
  if (duration.ok()) CKPT_ASSERT(duration->count() >= 0);
  // No text is both a size and a duration.
  CKPT_ASSERT(!size.ok() || !duration.ok());
  return size.ok() || duration.ok();
}

}  // namespace

const std::vector<Target>& format_targets() {
  static const std::vector<Target> targets = {
      {"frame", frame_seeds, frame_parse, frame_repair},
      {"record", record_seeds, record_parse},
      {"journal", journal_seeds, journal_parse, journal_repair},
      {"segment", segment_seeds, segment_parse, segment_repair},
      {"extent", extent_seeds, extent_parse, extent_repair},
      {"ledger", ledger_seeds, ledger_parse, segment_repair},
      {"safetensors", safetensors_seeds, safetensors_parse, safetensors_repair},
      {"size", size_seeds, size_parse},
  };
  return targets;
}

}  // namespace ckpt::fuzz
