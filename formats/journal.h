// Journal format: the append-only, hash-chained log that is the truth about a store.
//
//   journal := batch*      a batch is written with one write and made durable with one sync
//   batch   := record+ zero padding to a 4096-byte boundary
//   record  := JournalRecordHeader body
//
// A batch starts on its own block, so a torn write never touches an older record. A batch is valid
// as a whole or not at all. Every record carries the hash of all records before it (chain), so a
// lost, repeated or swapped piece is found. The writer starts a batch only once the batch before
// it is durable. So a damaged end is a torn tail only if nothing of a later batch follows; else the
// journal is corrupt and the error names the offset. Bodies are verified FlatBuffers of
// records.fbs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/result.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

// The newest store version that this program reads. A store's version is the one that its records
// need; its StoreOpened records state it. A daemon raises the version just before it writes the
// first record of a newer kind. From then on, older programs refuse the store. Starting a newer
// program is no upgrade by itself: the older program can still be used again. Versions by feature:
// store_version_of() and docs/reference/formats.md.
inline constexpr uint32_t kStoreFormatVersion = 11;
inline constexpr uint32_t kFirstStoreVersion = 1;

// The store version that a program must support to read this record correctly. A change that adds
// a kind of record, or a field that older programs must not ignore, returns a new version there,
// raises kStoreFormatVersion, and adds an item to the list in docs/reference/formats.md.
uint32_t store_version_of(const fb::RecordT& record);

// Builds batches and keeps the chain; does no I/O.
class JournalEncoder {
 public:
  // Start of an empty journal, or the position at which a reader stopped.
  struct Position {
    uint64_t offset = 0;         // file offset of the next batch
    uint64_t next_sequence = 1;  // of the next record
    uint64_t next_batch = 1;
    base::Hash128 chain;  // of all records before
    // A random number chosen when the journal is created and never sent to a client. Only records
    // with this salt count in judging the journal's end, so a trainer cannot plant metadata that
    // looks like a later batch.
    uint64_t salt = 0;
  };
  JournalEncoder() = default;
  explicit JournalEncoder(const Position& position) : position_(position) {}

  // Encodes the records (at least one) as one batch, padded to whole blocks, to be written at the
  // returned offset.
  struct Batch {
    uint64_t offset = 0;
    uint64_t first_sequence = 0;
    std::vector<std::byte> bytes;
  };
  Batch encode(const std::vector<fb::RecordT>& records);
  const Position& position() const { return position_; }

 private:
  Position position_;
};

// Reads a journal of `size` bytes, a batch at a time. Calls `on_record` in order for each record of
// each valid batch; its first error ends the scan. An empty image, or one of zeros, is an empty
// journal. kCorrupt: a durable record is damaged. Linear in the image; allocates nothing by an
// unchecked length.
struct JournalScan {
  JournalEncoder::Position end;  // where the next batch goes
  uint64_t torn_bytes = 0;       // truncated from the tail (without zero padding)
};
using OnRecord = std::function<Status(uint64_t sequence, const fb::RecordT& record)>;
// Returns these bytes of the journal, all inside it; the view is valid until the next call. An
// error ends the scan.
using ReadJournal = std::function<Result<ByteView>(uint64_t offset, uint64_t bytes)>;
Result<JournalScan> scan_journal(uint64_t size, const ReadJournal& read, const OnRecord& on_record);
// Same, for a journal in memory.
Result<JournalScan> scan_journal(ByteView image, const OnRecord& on_record);

// A damaged stretch of the journal: its durable records are lost.
struct JournalGap {
  std::string reason;               // the error text of scan_journal()
  JournalEncoder::Position before;  // where the first invalid batch should be
  // Sequence number of the first record after the gap: the records from
  // before.next_sequence up to this one were durable once.
  uint64_t next_sequence = 0;
};
using OnGap = std::function<void(const JournalGap& gap)>;
// Same, but reports damage as a gap and continues with the next valid batch. That batch is tied to
// this journal by the salt, not by the chain. `end` of the result is the end of what was read; do
// not append there if there was a gap.
Result<JournalScan> scan_damaged_journal(uint64_t size, const ReadJournal& read,
                                         const OnRecord& on_record, const OnGap& on_gap);

// For callers that read a journal piecewise. `bytes` start at position.offset. Checks the batches
// that are complete in `bytes` as scan_journal() does, but without decoding the bodies, and moves
// the position behind them. Returns the size of the next batch as far as known, which is larger
// than the rest of `bytes`; 0: not even its first block is there. kCorrupt: the batch at the
// position is damaged.
Result<uint64_t> check_journal_piece(ByteView bytes, JournalEncoder::Position& position);

// Encodes a record's body alone, as catalog values. decode_record: kCorrupt, or kVersionMismatch
// for a kind of record of a newer program.
std::vector<std::byte> encode_record(const fb::RecordT& record);
Result<fb::RecordT> decode_record(ByteView bytes);

}  // namespace ckpt
