#include "formats/ledger.h"

#include <array>
#include <cstddef>

#include "formats/base/crc32c.h"
#include "formats/base/ids.h"
#include "formats/segment.h"

namespace ckpt {
namespace {

constexpr uint64_t kLedgerMagic = 0x0047444c54504b43;  // the bytes "CKPTLDG\0"

// The first block. The rest of it is zero and covered by the checksum.
struct LedgerHeaderInMemory {
  uint64_t magic;        // marks a ledger: a service manager may hold other files
  uint32_t version;      // kLedgerFormatVersion: a newer one is refused, not guessed at
  uint32_t crc32c;       // of the whole block, with this field zero
  base::Hash128 store;   // runs and commits are those of this store
  uint64_t arena;        // a ledger under another arena's name is refused
  uint64_t arena_inode;  // so is another arena under this one's
  uint64_t slab_bytes;   // size of the arena's slabs, which places the slots
  uint32_t slab_count;
  uint32_t uid;  // user that may read the bytes
};
static_assert(sizeof(LedgerHeaderInMemory) == 64);

uint32_t block_crc32c(ByteView block) {
  constexpr std::array<std::byte, sizeof(uint32_t)> kZero{};
  constexpr size_t kAt = offsetof(LedgerHeaderInMemory, crc32c);
  const uint32_t before = base::crc32c(block.first(kAt));
  return base::crc32c(block.subspan(kAt + kZero.size()), base::crc32c(kZero, before));
}

Error no_ledger(std::string_view how) {
  return make_error(ErrorCode::kCorrupt, "ledger header: {}", how);
}

}  // namespace

void encode_ledger_header(const LedgerHeader& header, MutableByteView block) {
  CKPT_ASSERT(block.size() == kBlockBytes);
  std::memset(block.data(), 0, block.size());
  LedgerHeaderInMemory raw{.magic = kLedgerMagic,
                           .version = kLedgerFormatVersion,
                           .crc32c = 0,
                           .store = header.store,
                           .arena = header.arena,
                           .arena_inode = header.arena_inode,
                           .slab_bytes = header.layout.slab_bytes,
                           .slab_count = header.layout.slab_count,
                           .uid = header.uid};
  base::store(block.data(), raw);
  raw.crc32c = base::crc32c(block);
  base::store(block.data(), raw);
}

Result<LedgerHeader> decode_ledger_header(ByteView block) {
  if (block.size() < kBlockBytes) return no_ledger("shorter than a block");
  block = block.first(kBlockBytes);
  const auto raw = base::load<LedgerHeaderInMemory>(block.data());
  if (raw.magic != kLedgerMagic) return no_ledger("its magic is missing");
  if (raw.version > kLedgerFormatVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      "ledger header: format version {}, this program knows {}", raw.version,
                      kLedgerFormatVersion);
  }
  if (raw.version == 0) return no_ledger("format version 0");
  if (block_crc32c(block) != raw.crc32c) return no_ledger("does not match its checksum");
  if (!base::all_zero(block.subspan(sizeof(raw)))) return no_ledger("its padding is not zero");
  const LedgerHeader header{.store = raw.store,
                            .arena = raw.arena,
                            .arena_inode = raw.arena_inode,
                            .layout = {.slab_bytes = raw.slab_bytes, .slab_count = raw.slab_count},
                            .uid = raw.uid};
  CKPT_TRY(validate(header.layout));
  return header;
}

uint64_t ledger_slot_bytes() { return extent_header_bytes(kLedgerFragmentsMax); }

uint64_t ledger_slot_offset(const ArenaLayout& layout, LedgerTable table, uint32_t slab) {
  CKPT_ASSERT(slab < layout.slab_count);
  const uint64_t before = table == LedgerTable::kHeld ? 0 : layout.slab_count;
  return kBlockBytes + (before + slab) * ledger_slot_bytes();
}

uint64_t ledger_bytes(const ArenaLayout& layout) {
  return kBlockBytes + 2 * uint64_t{layout.slab_count} * ledger_slot_bytes();
}

}  // namespace ckpt
