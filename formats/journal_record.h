// The bytes of a journal record, shared by the encoder and the scanner. See journal.h.
#pragma once

#include <cstddef>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "formats/base/hash.h"

namespace ckpt::journal {

// Every record of a batch starts with this, at a multiple of 8 bytes; the first one of a batch at a
// multiple of 4096. The body and up to 7 zero bytes follow.
struct RecordHeader {
  uint32_t magic;          // "CKJ1": a record of ours
  uint32_t header_crc32c;  // of this header with this field zero: protects the lengths below
  uint32_t body_crc32c;    // of the body and its zero bytes
  uint32_t body_bytes;     // without the zero bytes
  uint64_t sequence;       // 1, 2, ... in the journal: none is missing
  uint64_t batch;          // 1, 2, ... in the journal: tells a torn tail from a damaged middle
  uint64_t offset;         // own place in the file: against a misdirected write
  uint64_t batch_bytes;    // of the whole batch, padding included
  uint32_t batch_records;  // a batch counts only as a whole
  uint32_t batch_index;    // of this record in its batch
  uint64_t salt;           // the journal's own, see JournalEncoder::Position
  base::Hash128 chain;     // hash of the previous record, header included
  uint64_t reserved[2];    // zero
};
static_assert(sizeof(RecordHeader) == 96);
static_assert(sizeof(RecordHeader) % 8 == 0);

inline constexpr uint32_t kRecordMagic = 0x314a4b43;  // the bytes "CKJ1"
inline constexpr uint64_t kRecordAlignment = 8;       // FlatBuffers read 8-byte scalars in place

inline uint64_t record_bytes(uint64_t body_bytes) {
  return sizeof(RecordHeader) + base::align_up(body_bytes, kRecordAlignment);
}

inline uint32_t crc32c_of(RecordHeader header) {
  header.header_crc32c = 0;
  std::byte bytes[sizeof(RecordHeader)];
  base::store(bytes, header);
  return base::crc32c(bytes);
}

// The chain value that the record after this one carries.
inline base::Hash128 chain_after(ByteView record) { return base::hash128(record); }

}  // namespace ckpt::journal
