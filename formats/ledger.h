// Ledger: the daemon's record of the bytes in one arena, in memory that outlives the process
// together with the arena (a service manager holds both while ckptd restarts). Private to the
// daemon: no client ever gets the memory.
//
//   ledger := header (4096 bytes) slot*
//   slot   := an extent header (segment.h), or empty: zeros, usually a hole
//
// Each slab has two slots, one in each of two tables; the table gives the state of the bytes. Slots
// have fixed places and hold the largest table of fragments, so one write stores an entry: it is
// there or not. Worked example: docs/reference/formats.md.
#pragma once

#include "formats/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/result.h"

namespace ckpt {

inline constexpr uint32_t kLedgerFormatVersion = 1;
// Fragments of one slab: 65,536, equal to the daemon's limit.
inline constexpr uint64_t kLedgerFragmentsMax = 1u << 16;

struct LedgerHeader {
  base::Hash128 store;       // run numbers are unique only within a store
  uint64_t arena = 0;        // the arena's number
  uint64_t arena_inode = 0;  // inode of its memory: another arena of the same name is refused
  ArenaLayout layout;
  uint32_t uid = 0;  // owner of the bytes
};

// Writes the 4096-byte block / checks and reads it.
void encode_ledger_header(const LedgerHeader& header, MutableByteView block);
Result<LedgerHeader> decode_ledger_header(ByteView block);

// State of a slab's bytes, and thereby the table of its slot.
enum class LedgerTable : uint8_t {
  kHeld,     // memory only: on no disk
  kDurable,  // committed to disk; kept as the fastest source of restores
};

// Offset and size of a slab's slot. All slots have the same size.
uint64_t ledger_slot_bytes();
uint64_t ledger_slot_offset(const ArenaLayout& layout, LedgerTable table, uint32_t slab);
uint64_t ledger_bytes(const ArenaLayout& layout);

}  // namespace ckpt
