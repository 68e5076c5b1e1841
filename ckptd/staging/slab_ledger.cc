#include "ckptd/staging/slab_ledger.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ckptd/limits.h"
#include "formats/base/checked.h"
#include "formats/base/open_files.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::LedgerTable;
using ckpt::make_error;
using ckpt::base::UniqueFd;

static_assert(ckpt::kLedgerFragmentsMax == limits::kFragmentsPerSlabMax);

namespace {

ckpt::Error failed(std::string_view what) {
  const int error = errno;
  return make_error(ErrorCode::kIo, "ledger: {}: {}{}", what, std::strerror(error),
                    ckpt::base::open_files_hint(error));
}

ckpt::Result<uint64_t> inode_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return failed("stat of the arena");
  return uint64_t{status.st_ino};
}

ckpt::Status write_all(int fd, ckpt::ByteView bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return failed("write");
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    at += static_cast<uint64_t>(wrote);
  }
  return {};
}

ckpt::Status read_all(int fd, ckpt::MutableByteView bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read");
    if (got == 0) return make_error(ErrorCode::kCorrupt, "ledger: it ends at {}", at);
    bytes = bytes.subspan(static_cast<size_t>(got));
    at += static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace

ckpt::Result<SlabLedger> SlabLedger::create(ckpt::LedgerHeader header, int arena_fd) {
  CKPT_ASSIGN(header.arena_inode, inode_of(arena_fd));
  UniqueFd fd(::memfd_create("ckpt-ledger", MFD_CLOEXEC));
  if (!fd.valid()) return failed("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(ckpt::ledger_bytes(header.layout))) != 0) {
    return failed("ftruncate");
  }
  std::array<std::byte, kBlockBytes> block;
  ckpt::encode_ledger_header(header, block);
  CKPT_TRY(write_all(fd.get(), block, 0));
  return SlabLedger(std::move(fd), header);
}

ckpt::Result<SlabLedger> SlabLedger::open(UniqueFd fd, const ckpt::base::Hash128& store,
                                          uint64_t arena, int arena_fd) {
  std::array<std::byte, kBlockBytes> block;
  CKPT_TRY(read_all(fd.get(), block, 0));
  CKPT_ASSIGN(const ckpt::LedgerHeader header, ckpt::decode_ledger_header(block));
  const auto refuse = [](std::string_view why) {
    return make_error(ErrorCode::kFailedPrecondition, "ledger: it is of another {}", why);
  };
  if (header.store != store) return refuse("store");
  if (header.arena != arena) return refuse("arena");
  CKPT_ASSIGN(const uint64_t inode, inode_of(arena_fd));
  if (header.arena_inode != inode) return refuse("arena's memory");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return failed("stat");
  if (static_cast<uint64_t>(status.st_size) != ckpt::ledger_bytes(header.layout)) {
    return make_error(ErrorCode::kCorrupt, "ledger: it has {} bytes instead of {}", status.st_size,
                      ckpt::ledger_bytes(header.layout));
  }
  return SlabLedger(std::move(fd), header);
}

void SlabLedger::put(LedgerTable table, uint32_t slab, const ckpt::SnapshotKey& snapshot,
                     uint64_t order, const std::vector<ckpt::ExtentFragment>& fragments) {
  const uint64_t at = ckpt::ledger_slot_offset(header_.layout, table, slab);
  ckpt::ExtentHeader known{
      .store = header_.store,
      .segment = header_.arena,
      .offset = at,
      .snapshot = snapshot,
      .rank = 0,
      .sequence = order,
      .payload_bytes = fragments.back().payload_offset + fragments.back().length,
      .payload_crc32c = 0,
      .fragments = fragments};
  known.payload_crc32c =
      ckpt::payload_crc32c(fragments, ckpt::base::align_up(known.payload_bytes, kBlockBytes));
  std::vector<std::byte> entry(ckpt::extent_header_bytes(fragments));
  ckpt::encode_extent_header(known, entry);
  // Entries taken back already exist; writing one again could tear it.
  std::vector<std::byte> there(entry.size());
  if (read_all(fd_.get(), there, at).ok() && there == entry) return;
  const ckpt::Status written = write_all(fd_.get(), entry, at);
  if (written.ok()) return;
  ++write_errors_;
  spdlog::warn("arena {} slab {}: it will not survive a restart: {}", header_.arena, slab,
               written.error().message);
  clear(table, slab);
}

// Punches a hole. If that fails, the entry will not match the slab's next bytes, and is refused.
void SlabLedger::clear(LedgerTable table, uint32_t slab) {
  const uint64_t at = ckpt::ledger_slot_offset(header_.layout, table, slab);
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const auto bytes = static_cast<off_t>(ckpt::ledger_slot_bytes());
  if (::fallocate(fd_.get(), mode, static_cast<off_t>(at), bytes) == 0) return;
  ++write_errors_;
  spdlog::warn("arena {} slab {}: its entry stays: {}", header_.arena, slab, std::strerror(errno));
}

// nullopt: the slot is empty.
ckpt::Result<std::optional<SlabLedger::Entry>> SlabLedger::read(LedgerTable table,
                                                                uint32_t slab) const {
  const uint64_t at = ckpt::ledger_slot_offset(header_.layout, table, slab);
  // The first block has the entry's length; lengths beyond a slot are invalid.
  std::vector<std::byte> bytes(kBlockBytes);
  CKPT_TRY(read_all(fd_.get(), bytes, at));
  if (ckpt::base::all_zero(bytes)) return std::optional<Entry>();
  constexpr size_t kBytesAt = 16;  // the header's length: docs/reference/formats.md
  const auto header_bytes = ckpt::base::load<uint32_t>(bytes.data() + kBytesAt);
  bytes.resize(std::clamp<uint64_t>(header_bytes, kBlockBytes, ckpt::ledger_slot_bytes()));
  CKPT_TRY(read_all(fd_.get(), bytes, at));
  CKPT_ASSIGN(ckpt::ExtentHeader known, ckpt::decode_extent_header(bytes));
  if (known.store != header_.store || known.segment != header_.arena || known.offset != at) {
    return make_error(ErrorCode::kCorrupt, "it was written for another place");
  }
  return std::optional(Entry{.table = table, .slab = slab, .known = std::move(known)});
}

// Skips holes: a ledger consists mostly of holes.
std::vector<SlabLedger::Entry> SlabLedger::entries(
    const std::function<void(const ckpt::Error&)>& refused) {
  std::vector<Entry> found;
  const uint64_t slots = 2 * uint64_t{header_.layout.slab_count};
  for (uint64_t slot = 0; slot < slots; ++slot) {
    const uint64_t from = kBlockBytes + slot * ckpt::ledger_slot_bytes();
    const off_t data = ::lseek(fd_.get(), static_cast<off_t>(from), SEEK_DATA);
    if (data < 0) break;  // ENXIO: only a hole up to the end
    slot = std::max(slot, (static_cast<uint64_t>(data) - kBlockBytes) / ckpt::ledger_slot_bytes());
    if (slot >= slots) break;
    const uint32_t count = header_.layout.slab_count;
    const LedgerTable table = slot < count ? LedgerTable::kHeld : LedgerTable::kDurable;
    const auto slab = static_cast<uint32_t>(slot < count ? slot : slot - count);
    auto entry = read(table, slab);
    if (entry.ok()) {
      if (entry->has_value()) found.push_back(std::move(**entry));
      continue;
    }
    refused(make_error(entry.error().code, "arena {} slab {}: {}", header_.arena, slab,
                       entry.error().message));
    clear(table, slab);
  }
  return found;
}

}  // namespace ckptd
