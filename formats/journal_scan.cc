// Reads a journal: which batches are valid, and whether the bytes after them are a torn write (to
// be truncated) or damage to durable records (an error).
#include <algorithm>
#include <optional>
#include <string>

#include "formats/base/ids.h"
#include "formats/journal.h"
#include "formats/journal_record.h"

namespace ckpt {
namespace {

using journal::RecordHeader;

// Window size of the search beyond the journal's end.
constexpr uint64_t kSearchBytes = 256 * kBlockBytes;

// The header at `at`, if its checksum matches.
std::optional<RecordHeader> intact_header(ByteView bytes, uint64_t at) {
  if (!base::range_fits(at, sizeof(RecordHeader), bytes.size())) return std::nullopt;
  const auto header = base::load<RecordHeader>(bytes.data() + at);
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
  Scanner(uint64_t size, const ReadJournal& read, const OnRecord& on_record,
          const OnGap& on_gap = {}, const JournalEncoder::Position& from = {})
      : size_(size), read_(read), on_record_(on_record), on_gap_(on_gap), at_(from) {}

  Result<JournalScan> scan() {
    while (at_.offset < size_) {
      std::vector<Body> bodies;
      JournalEncoder::Position after = at_;
      const Result<std::string> damage = read_batch(bodies, after);
      if (damage.ok() && damage->empty()) {
        CKPT_TRY(deliver(bodies));
        at_ = after;
        continue;
      }
      const Status end = damage.ok() ? check_no_later_batch(*damage) : Status(damage.error());
      if (end.ok()) {
        CKPT_ASSIGN(const uint64_t torn, torn_bytes());
        return JournalScan{.end = at_, .torn_bytes = torn};
      }
      if (!on_gap_ || end.error().code != ErrorCode::kCorrupt) return end.error();
      CKPT_TRY(pass_gap(end.error().message));
    }
    return JournalScan{.end = at_, .torn_bytes = 0};
  }

  // See check_journal_piece().
  Result<uint64_t> check_piece(JournalEncoder::Position& position) {
    std::vector<Body> bodies;
    while (base::range_fits(at_.offset, kBlockBytes, size_)) {
      CKPT_ASSIGN(const ByteView block, read(at_.offset, kBlockBytes));
      const std::optional<RecordHeader> first = intact_header(block, 0);
      const bool same_journal = first && (is_first_batch() || first->salt == at_.salt);
      if (same_journal && !base::range_fits(at_.offset, first->batch_bytes, size_)) {
        return first->batch_bytes;
      }
      JournalEncoder::Position after = at_;
      CKPT_ASSIGN(const std::string damage, read_batch(bodies, after));
      if (!damage.empty()) return corrupt(at_.offset, damage);
      bodies.clear();
      position = at_ = after;
    }
    return 0;
  }

 private:
  bool is_first_batch() const { return at_.next_batch == 1; }

  Error corrupt(uint64_t offset, std::string_view how) const {
    return make_error(ErrorCode::kCorrupt, "journal at offset {}: {}", offset, how);
  }

  Error misplaced(uint64_t offset, const RecordHeader& header) const {
    return corrupt(offset, fmt::format("holds what was written for offset {}", header.offset));
  }

  // Reads the batch at `at_`: its bodies and the position after it. If the batch is damaged or was
  // never fully written, returns a sentence about the damage. An Error means: not a torn write.
  Result<std::string> read_batch(std::vector<Body>& bodies, JournalEncoder::Position& after) {
    CKPT_ASSIGN(const ByteView block, read(at_.offset, std::min(kBlockBytes, size_ - at_.offset)));
    const std::optional<RecordHeader> first = intact_header(block, 0);
    if (!first) return std::string("no record header that matches its checksum");
    if (is_first_batch()) after.salt = first->salt;
    if (first->salt != after.salt) return std::string("a record of another journal");
    CKPT_TRY(check_place(*first));
    if (first->batch < at_.next_batch) {
      return std::string("a record left over from an earlier torn write");
    }
    if (first->batch_bytes == 0 || !base::is_aligned(first->batch_bytes, kBlockBytes) ||
        !base::range_fits(at_.offset, first->batch_bytes, size_)) {
      return fmt::format("the batch has {} bytes, the journal ends before them",
                         first->batch_bytes);
    }
    CKPT_ASSIGN(const ByteView batch, read(at_.offset, first->batch_bytes));
    for (uint32_t i = 0; i < first->batch_records; ++i) {
      std::string damage = read_record(*first, i, batch, bodies, after);
      if (!damage.empty()) return damage;
    }
    const ByteView padding = batch.subspan(after.offset - at_.offset);
    if (padding.size() >= kBlockBytes || !base::all_zero(padding)) {
      return std::string("the padding of the batch is not zero");
    }
    after.offset = at_.offset + batch.size();
    ++after.next_batch;
    return std::string();
  }

  // The record at the expected place of a batch is intact: it is the expected one, or a leftover of
  // an earlier torn write to this place. No other record was ever written here.
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

  // Reads one record of the batch, at journal offset after.offset, and moves `after` behind it.
  std::string read_record(const RecordHeader& first, uint32_t index, ByteView batch,
                          std::vector<Body>& bodies, JournalEncoder::Position& after) const {
    const auto damage = [index](std::string_view how) {
      return fmt::format("record {} of the batch {}", index, how);
    };
    const uint64_t begin = after.offset - at_.offset;
    const std::optional<RecordHeader> header = intact_header(batch, begin);
    if (!header) return damage("does not match its checksum");
    if (is_first_batch() && index == 0) after.chain = header->chain;
    // A torn write over an older torn write can leave intact records of both. The chain
    // distinguishes them.
    if (header->batch != first.batch || header->batch_bytes != first.batch_bytes ||
        header->batch_records != first.batch_records || header->batch_index != index ||
        header->salt != first.salt || header->offset != after.offset ||
        header->sequence != after.next_sequence || header->chain != after.chain) {
      return damage("does not follow from the one before it");
    }
    const uint64_t bytes = journal::record_bytes(header->body_bytes);
    if (bytes > batch.size() - begin) return damage("ends beyond its batch");
    const ByteView record = batch.subspan(begin, bytes);
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

  // A batch is written only after the batch before it is durable. So if a later batch exists, or
  // the batch lies elsewhere, the damaged batch was durable once and is no torn tail.
  Status check_no_later_batch(const std::string& damage) const {
    return for_each_remaining([&](uint64_t at, ByteView bytes) -> Status {
      for (uint64_t i = 0; i < bytes.size(); i += kBlockBytes) {
        const std::optional<RecordHeader> header = intact_header(bytes, i);
        if (!header || (!is_first_batch() && header->salt != at_.salt)) continue;
        if (header->batch > at_.next_batch) {
          return corrupt(at_.offset, fmt::format("{}, yet batch {} follows at offset {}", damage,
                                                 header->batch, at + i));
        }
        if (header->offset != at + i) return misplaced(at + i, *header);
      }
      return ok_status();
    });
  }

  // Moves `at_` past the damage: to the next valid batch, or to the end. Headers of invalid later
  // batches still tell which records were durable before them.
  Status pass_gap(const std::string& reason) {
    JournalGap gap{.reason = reason, .before = at_, .next_sequence = at_.next_sequence};
    const JournalEncoder::Position before = at_;
    for (uint64_t from = before.offset; from < size_; from += kSearchBytes) {
      CKPT_ASSIGN(const auto candidates, later_batches(from, before));
      for (const JournalEncoder::Position& candidate : candidates) {
        gap.next_sequence = std::max(gap.next_sequence, candidate.next_sequence);
        at_ = candidate;
        std::vector<Body> bodies;
        JournalEncoder::Position after = at_;
        const Result<std::string> damage = read_batch(bodies, after);
        if (!damage.ok() && damage.error().code != ErrorCode::kCorrupt) return damage.error();
        if (!damage.ok() || !damage->empty()) continue;
        on_gap_(gap);
        return ok_status();
      }
    }
    at_ = before;
    at_.offset = size_;
    at_.next_sequence = gap.next_sequence;
    on_gap_(gap);
    return ok_status();
  }

  // Positions of batches of this journal after `before`, found by intact headers at their own
  // offsets in kSearchBytes from `from` on. If the first batch is lost, and the salt with it, only
  // the second batch, which a trainer cannot write either, can identify the journal.
  Result<std::vector<JournalEncoder::Position>> later_batches(
      uint64_t from, const JournalEncoder::Position& before) const {
    std::vector<JournalEncoder::Position> found;
    CKPT_ASSIGN(const ByteView bytes, read(from, std::min(kSearchBytes, size_ - from)));
    for (uint64_t i = 0; i < bytes.size(); i += kBlockBytes) {
      const std::optional<RecordHeader> header = intact_header(bytes, i);
      if (!header || header->offset != from + i || header->batch_index != 0) continue;
      const bool ours = before.next_batch == 1 ? header->batch == 2 : header->salt == before.salt;
      if (!ours || header->batch <= before.next_batch || header->sequence <= before.next_sequence) {
        continue;
      }
      found.push_back({.offset = header->offset,
                       .next_sequence = header->sequence,
                       .next_batch = header->batch,
                       .chain = header->chain,
                       .salt = header->salt});
    }
    return found;
  }

  // Bytes up to the last byte that is not zero.
  Result<uint64_t> torn_bytes() const {
    uint64_t torn = 0;
    CKPT_TRY(for_each_remaining([&](uint64_t at, ByteView bytes) {
      const auto last = std::find_if(bytes.rbegin(), bytes.rend(),
                                     [](std::byte byte) { return byte != std::byte{0}; });
      if (last == bytes.rend()) return ok_status();
      torn = at - at_.offset + static_cast<uint64_t>(bytes.rend() - last);
      return ok_status();
    }));
    return torn;
  }

  // Visits everything behind the last valid batch, in pieces of whole blocks.
  Status for_each_remaining(const std::function<Status(uint64_t at, ByteView bytes)>& visit) const {
    for (uint64_t at = at_.offset; at < size_; at += kSearchBytes) {
      CKPT_ASSIGN(const ByteView bytes, read(at, std::min(kSearchBytes, size_ - at)));
      CKPT_TRY(visit(at, bytes));
    }
    return ok_status();
  }

  Result<ByteView> read(uint64_t offset, uint64_t bytes) const {
    CKPT_ASSIGN(const ByteView view, read_(offset, bytes));
    CKPT_ASSERT(view.size() == bytes);
    return view;
  }

  const uint64_t size_;
  const ReadJournal& read_;
  const OnRecord& on_record_;
  const OnGap on_gap_;
  JournalEncoder::Position at_;
};

}  // namespace

Result<JournalScan> scan_journal(uint64_t size, const ReadJournal& read,
                                 const OnRecord& on_record) {
  return Scanner(size, read, on_record).scan();
}

Result<JournalScan> scan_journal(ByteView image, const OnRecord& on_record) {
  const ReadJournal read = [image](uint64_t offset, uint64_t bytes) -> Result<ByteView> {
    return image.subspan(offset, bytes);
  };
  return Scanner(image.size(), read, on_record).scan();
}

Result<JournalScan> scan_damaged_journal(uint64_t size, const ReadJournal& read,
                                         const OnRecord& on_record, const OnGap& on_gap) {
  return Scanner(size, read, on_record, on_gap).scan();
}

Result<uint64_t> check_journal_piece(ByteView bytes, JournalEncoder::Position& position) {
  const uint64_t begin = position.offset;
  const ReadJournal read = [&](uint64_t offset, uint64_t length) -> Result<ByteView> {
    return bytes.subspan(offset - begin, length);
  };
  const OnRecord no_record;
  return Scanner(begin + bytes.size(), read, no_record, {}, position).check_piece(position);
}

}  // namespace ckpt
