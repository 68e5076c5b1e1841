// Reading a journal back: which batches hold, and whether what follows them is a torn write (cut)
// or damage to something that was durable (an error).
#include <algorithm>
#include <optional>
#include <string>

#include "formats/base/ids.h"
#include "formats/journal.h"
#include "formats/journal_record.h"

namespace ckpt {
namespace {

using journal::RecordHeader;

// The header at `at`, if there is one whose checksum holds.
std::optional<RecordHeader> intact_header(ByteView image, uint64_t at) {
  if (!base::range_fits(at, sizeof(RecordHeader), image.size())) return std::nullopt;
  const auto header = base::load<RecordHeader>(image.data() + at);
  if (header.magic != journal::kRecordMagic) return std::nullopt;
  if (header.header_crc32c != journal::crc32c_of(header)) return std::nullopt;
  return header;
}

struct Body {
  uint64_t offset;  // of its record
  ByteView bytes;
};

class Scanner {
 public:
  Scanner(ByteView image, const OnRecord& on_record) : image_(image), on_record_(on_record) {}

  Result<JournalScan> scan() {
    while (at_.offset < image_.size()) {
      std::vector<Body> bodies;
      JournalEncoder::Position after = at_;
      CKPT_ASSIGN(const std::string damage, read_batch(bodies, after));
      if (!damage.empty()) {
        CKPT_TRY(check_that_nothing_follows(damage));
        return JournalScan{.end = at_, .torn_bytes = torn_bytes()};
      }
      CKPT_TRY(deliver(bodies));
      at_ = after;
    }
    return JournalScan{.end = at_, .torn_bytes = 0};
  }

 private:
  bool is_first_batch() const { return at_.next_batch == 1; }

  Error corrupt(uint64_t offset, std::string_view how) const {
    return make_error(ErrorCode::kCorrupt, "journal at offset {}: {}", offset, how);
  }

  Error misplaced(uint64_t offset, const RecordHeader& header) const {
    return corrupt(offset, fmt::format("holds what was written for offset {}", header.offset));
  }

  // Reads the batch at `at_`: its bodies and the position after it, or, if it is damaged or was
  // never wholly written, a sentence about what is wrong. An error is what no torn write leaves.
  Result<std::string> read_batch(std::vector<Body>& bodies, JournalEncoder::Position& after) {
    const std::optional<RecordHeader> first = intact_header(image_, at_.offset);
    if (!first) return std::string("no record header that matches its checksum");
    if (is_first_batch()) after.salt = first->salt;
    if (first->salt != after.salt) return std::string("a record of another journal");
    CKPT_TRY(check_place(*first));
    if (first->batch < at_.next_batch) {
      return std::string("a record left over from an earlier torn write");
    }
    if (first->batch_bytes == 0 || !base::is_aligned(first->batch_bytes, kBlockBytes) ||
        !base::range_fits(at_.offset, first->batch_bytes, image_.size())) {
      return fmt::format("the batch has {} bytes, the journal ends before them",
                         first->batch_bytes);
    }
    const uint64_t end = at_.offset + first->batch_bytes;
    for (uint32_t i = 0; i < first->batch_records; ++i) {
      std::string damage = read_record(*first, i, end, bodies, after);
      if (!damage.empty()) return damage;
    }
    if (end - after.offset >= kBlockBytes ||
        !base::all_zero(image_.subspan(after.offset, end - after.offset))) {
      return std::string("the padding of the batch is not zero");
    }
    after.offset = end;
    ++after.next_batch;
    return std::string();
  }

  // The record where a batch should begin is intact: it is the one expected, or left over from an
  // earlier torn write to this very place. Anything else was never written here.
  Status check_place(const RecordHeader& first) const {
    if (first.batch > at_.next_batch) {
      return corrupt(at_.offset,
                     fmt::format("batch {} where batch {} should be", first.batch, at_.next_batch));
    }
    if (first.offset != at_.offset) return misplaced(at_.offset, first);
    if (first.batch < at_.next_batch) return ok_status();
    if (first.sequence != at_.next_sequence || first.batch_index != 0) {
      return corrupt(at_.offset, fmt::format("record {} where record {} should be", first.sequence,
                                             at_.next_sequence));
    }
    if (!is_first_batch() && first.chain != at_.chain) {
      return corrupt(at_.offset, "does not follow from the records before it");
    }
    return ok_status();
  }

  // Reads one record at after.offset and moves `after` behind it.
  std::string read_record(const RecordHeader& first, uint32_t index, uint64_t end,
                          std::vector<Body>& bodies, JournalEncoder::Position& after) const {
    const auto damage = [index](std::string_view how) {
      return fmt::format("record {} of the batch {}", index, how);
    };
    const std::optional<RecordHeader> header = intact_header(image_.first(end), after.offset);
    if (!header) return damage("does not match its checksum");
    if (is_first_batch() && index == 0) after.chain = header->chain;
    // A torn write over an older torn write can leave intact records of both; the chain tells.
    if (header->batch != first.batch || header->batch_bytes != first.batch_bytes ||
        header->batch_records != first.batch_records || header->batch_index != index ||
        header->salt != first.salt || header->offset != after.offset ||
        header->sequence != after.next_sequence || header->chain != after.chain) {
      return damage("does not follow from the one before it");
    }
    const uint64_t bytes = journal::record_bytes(header->body_bytes);
    if (bytes > end - after.offset) return damage("ends beyond its batch");
    const ByteView record = image_.subspan(after.offset, bytes);
    const ByteView padded_body = record.subspan(sizeof(RecordHeader));
    if (base::crc32c(padded_body) != header->body_crc32c) {
      return damage("has a body that does not match its checksum");
    }
    if (!base::all_zero(padded_body.subspan(header->body_bytes)) || header->reserved[0] != 0 ||
        header->reserved[1] != 0) {
      return damage("has reserved bytes or padding that are not zero");
    }
    bodies.push_back({.offset = after.offset, .bytes = padded_body.first(header->body_bytes)});
    after.offset += bytes;
    ++after.next_sequence;
    after.chain = journal::chain_after(record);
    return {};
  }

  Status deliver(const std::vector<Body>& bodies) {
    uint64_t sequence = at_.next_sequence;
    for (const Body& body : bodies) {
      const Result<fb::RecordT> record = decode_record(body.bytes);
      if (!record.ok()) {
        return make_error(record.error().code, "journal at offset {}: {}", body.offset,
                          record.error().message);
      }
      CKPT_TRY(on_record_(sequence++, *record));
    }
    return ok_status();
  }

  // A batch is written only after the one before it is durable. So if a later one exists, the
  // damaged one was durable once, and this is no torn tail. Nor is it if the batch lies elsewhere.
  Status check_that_nothing_follows(const std::string& damage) const {
    for (uint64_t at = at_.offset; at < image_.size(); at += kBlockBytes) {
      const std::optional<RecordHeader> header = intact_header(image_, at);
      if (!header || (!is_first_batch() && header->salt != at_.salt)) continue;
      if (header->batch > at_.next_batch) {
        return corrupt(at_.offset, fmt::format("{}, yet batch {} follows at offset {}", damage,
                                               header->batch, at));
      }
      if (header->offset != at) return misplaced(at, *header);
    }
    return ok_status();
  }

  // Up to the last byte that is not zero.
  uint64_t torn_bytes() const {
    const ByteView tail = image_.subspan(at_.offset);
    const auto last = std::find_if(tail.rbegin(), tail.rend(),
                                   [](std::byte byte) { return byte != std::byte{0}; });
    return static_cast<uint64_t>(tail.rend() - last);
  }

  ByteView image_;
  const OnRecord& on_record_;
  JournalEncoder::Position at_;
};

}  // namespace

Result<JournalScan> scan_journal(ByteView image, const OnRecord& on_record) {
  return Scanner(image, on_record).scan();
}

}  // namespace ckpt
