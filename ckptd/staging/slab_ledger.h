// SlabLedger: records the daemon's knowledge of one arena's slabs in a memfd that a keeper holds
// (formats/ledger.h). Only slabs with checked and committed bytes are in it.
//
// Loop thread only. A failed write costs only the entry: its slab is lost at a restart, as without
// a keeper.
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
  // Creates an empty ledger for the arena. Fills in header.arena_inode.
  static ckpt::Result<SlabLedger> create(ckpt::LedgerHeader header, int arena_fd);
  // Opens a kept ledger. Fails unless it belongs to this store, arena and memory.
  static ckpt::Result<SlabLedger> open(ckpt::base::UniqueFd fd, const ckpt::base::Hash128& store,
                                       uint64_t arena, int arena_fd);

  // Adds a slab. `order` orders slabs by age. Fragments as they were checked.
  void put(ckpt::LedgerTable table, uint32_t slab, const ckpt::SnapshotKey& snapshot,
           uint64_t order, const std::vector<ckpt::ExtentFragment>& fragments);
  void clear(ckpt::LedgerTable table, uint32_t slab);
  uint64_t write_errors() const { return write_errors_; }  // of put() and clear()

  struct Entry {
    ckpt::LedgerTable table;
    uint32_t slab = 0;
    ckpt::ExtentHeader known;
  };
  // All valid entries. Reports each invalid entry to `refused`, and clears it.
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
