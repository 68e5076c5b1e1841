// Journal format: the append-only, hash-chained log that is the truth about a store.
//
//   journal := batch*      a batch is written with one write and made durable with one sync
//   batch   := record+ zero padding to a 4096-byte boundary
//   record  := JournalRecordHeader body
//
// A batch starts on a block of its own, so that a torn write never touches an older record; it
// holds as a whole or not at all. Every record carries the hash of all before it (chain), so that a
// lost, repeated or exchanged piece is found. The writer starts a batch only once the one before it
// is durable. So a damaged end is a torn tail only if nothing of a later batch follows it; else the
// journal is corrupt and the error names the offset. Bodies are FlatBuffers of records.fbs,
// verified.
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

// The newest store version that this program reads. A store has the version that its records need,
// which its StoreOpened records say: a daemon that writes the first record of a newer kind raises
// it just before, and older programs refuse the store from then on. So a start of a newer program
// alone keeps nobody from going back. What needs which version: store_version_of(), and
// docs/reference/formats.md.
inline constexpr uint32_t kStoreFormatVersion = 9;
inline constexpr uint32_t kFirstStoreVersion = 1;

// The version that a program must know so as to read this record right. Whoever adds a kind of
// record, or a field that an older program must not pass over, says so there, raises
// kStoreFormatVersion, and adds a row to the table in docs/reference/formats.md.
uint32_t store_version_of(const fb::RecordT& record);

// Builds batches. Keeps the chain; does no I/O.
class JournalEncoder {
 public:
  // Starts an empty journal, or goes on where a reader stopped.
  struct Position {
    uint64_t offset = 0;         // file offset of the next batch
    uint64_t next_sequence = 1;  // of the next record
    uint64_t next_batch = 1;
    base::Hash128 chain;  // of everything before
    // A random number that a new journal is started with and that no client is told. Only records
    // with it count when the end of the journal is judged, so that a trainer cannot plant bytes in
    // its metadata that look like a later batch.
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
// each batch that holds; its first error ends the scan. An empty image, or one of zeros, is an
// empty journal. kCorrupt: what was durable is damaged. Linear in the image; allocates nothing by a
// length it has not checked.
struct JournalScan {
  JournalEncoder::Position end;  // where the next batch goes
  uint64_t torn_bytes = 0;       // cut from the tail (zero padding does not count)
};
using OnRecord = std::function<Status(uint64_t sequence, const fb::RecordT& record)>;
// Gives these bytes of the journal, all of which lie in it; they stay until the next call. An error
// ends the scan.
using ReadJournal = std::function<Result<ByteView>(uint64_t offset, uint64_t bytes)>;
Result<JournalScan> scan_journal(uint64_t size, const ReadJournal& read, const OnRecord& on_record);
// The same, of one that is in memory.
Result<JournalScan> scan_journal(ByteView image, const OnRecord& on_record);

// A stretch in which something durable is damaged: records that are there no more.
struct JournalGap {
  std::string reason;               // as the error of scan_journal() says it
  JournalEncoder::Position before;  // where the first batch should be that does not hold
  // Of the first record that can be read again, or would be: the records from
  // before.next_sequence up to here were durable once.
  uint64_t next_sequence = 0;
};
using OnGap = std::function<void(const JournalGap& gap)>;
// The same, but it tells of damage, and goes on with the next batch behind it that holds. The
// chain ties that to nothing before it; the salt does. `end` of the result is the end of what was
// read, and no place to write to if there was a gap.
Result<JournalScan> scan_damaged_journal(uint64_t size, const ReadJournal& read,
                                         const OnRecord& on_record, const OnGap& on_gap);

// For who reads a journal piece by piece. `bytes` are those from position.offset on: checks the
// batches that lie in them as a whole, as scan_journal() does but without decoding what they say,
// and moves the position behind them. Returns the size of the batch that comes next, as far as that
// is known, which is more than is left of `bytes`; 0: not even its first block is there. kCorrupt:
// the batch at the position is damaged.
Result<uint64_t> check_journal_piece(ByteView bytes, JournalEncoder::Position& position);

// A record's body alone, as catalog values use it. decode_record: kCorrupt, or kVersionMismatch for
// a kind of record that only a newer program knows.
std::vector<std::byte> encode_record(const fb::RecordT& record);
Result<fb::RecordT> decode_record(ByteView bytes);

}  // namespace ckpt
