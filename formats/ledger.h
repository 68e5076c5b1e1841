// Ledger: what ckptd knows of the bytes in one arena, in memory that outlives the process together
// with the arena (a service manager holds both while ckptd restarts). Daemon-private: no client
// ever gets it.
//
//   ledger := header (4096 bytes) slot*
//   slot   := the header of an extent (segment.h), or nothing: zeros, as a rule a hole
//
// Each slab has two slots, one in each of two tables; the table says what its bytes are. Slots lie
// at fixed places and are large enough for the largest table of fragments, so an entry is written
// with one write and is there or not. Worked example: docs/reference/formats.md.
#pragma once

#include "formats/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/result.h"

namespace ckpt {

inline constexpr uint32_t kLedgerFormatVersion = 1;
// Of one slab: 65,536, as the daemon's limits have it.
inline constexpr uint64_t kLedgerFragmentsMax = 1u << 16;

struct LedgerHeader {
  base::Hash128 store;       // a store's runs have numbers of their own
  uint64_t arena = 0;        // the arena's number
  uint64_t arena_inode = 0;  // of its memory: another arena under the same name is refused
  ArenaLayout layout;
  uint32_t uid = 0;  // whose bytes these are
};

// Writes the 4096-byte block / checks and reads it.
void encode_ledger_header(const LedgerHeader& header, MutableByteView block);
Result<LedgerHeader> decode_ledger_header(ByteView block);

// What the daemon knows of a slab's bytes, and so the table it is in.
enum class LedgerTable : uint8_t {
  kHeld,     // memory only: no disk has them
  kDurable,  // committed to disk; kept as the fastest source of restores
};

// Where the slab's slot is. All slots have the same size.
uint64_t ledger_slot_bytes();
uint64_t ledger_slot_offset(const ArenaLayout& layout, LedgerTable table, uint32_t slab);
uint64_t ledger_bytes(const ArenaLayout& layout);

}  // namespace ckpt
