// SlabLedger: writes down what the daemon knows of one arena's slabs, in a memfd that a keeper
// holds on to (formats/ledger.h). Only slabs whose bytes were checked and committed are in it.
//
// Loop thread only. A failed write costs the entry, never the daemon: what is not in the ledger is
// not there after a restart, as if nobody kept anything.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "formats/base/unique_fd.h"
#include "formats/ledger.h"
#include "formats/segment.h"

namespace ckptd {

class SlabLedger {
 public:
  // A new one for the arena, without entries. header.arena_inode is filled in.
  static ckpt::Result<SlabLedger> create(ckpt::LedgerHeader header, int arena_fd);
  // One that was kept. Refused unless it is of this store, arena and memory.
  static ckpt::Result<SlabLedger> open(ckpt::base::UniqueFd fd, const ckpt::base::Hash128& store,
                                       uint64_t arena, int arena_fd);

  // Of a slab: `order` says which was there first. Fragments as they were checked.
  void put(ckpt::LedgerTable table, uint32_t slab, const ckpt::SnapshotKey& snapshot,
           uint64_t order, const std::vector<ckpt::ExtentFragment>& fragments);
  void clear(ckpt::LedgerTable table, uint32_t slab);
  uint64_t write_errors() const { return write_errors_; }  // of put() and clear()

  struct Entry {
    ckpt::LedgerTable table;
    uint32_t slab = 0;
    ckpt::ExtentHeader known;
  };
  // Every entry that holds; `refused` is told of each that does not, and it is cleared.
  std::vector<Entry> entries(const std::function<void(const ckpt::Error&)>& refused);

  const ckpt::LedgerHeader& header() const { return header_; }
  int fd() const { return fd_.get(); }

 private:
  SlabLedger(ckpt::base::UniqueFd fd, const ckpt::LedgerHeader& header)
      : fd_(std::move(fd)), header_(header) {}
  ckpt::Result<std::optional<Entry>> read(ckpt::LedgerTable table, uint32_t slab) const;

  uint64_t write_errors_ = 0;
  ckpt::base::UniqueFd fd_;
  ckpt::LedgerHeader header_;
};

}  // namespace ckptd
