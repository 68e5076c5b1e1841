// CatalogKeeper: keeps the daemon's catalog usable.
//
//   damaged, or of another store   moved aside or emptied, and filled from the journal again
//   no room on the disk            index in memory until there is room (stand_in_store.h)
//   a shortage (descriptors, ...)  read again later; nothing is dropped
//
// Loop thread. All calls block: no client gets an answer from a partial index.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/stand_in_store.h"
#include "ckptd/catalog/whole_read.h"
#include "ckptd/history/recovered_store.h"
#include "ckptd/io/disk.h"
#include "ckptd/limits.h"
#include "ckptd/loop/turn.h"

namespace ckptd {

class CatalogKeeper {
 public:
  // The journal of the catalog.
  struct Journal {
    FileId file = 0;
    uint64_t last_sequence = 0;  // of its last record, which the catalog must reach
  };

  CatalogKeeper(Disk& disk, StandInStore::Open open_on_disk)
      : disk_(disk), open_on_disk_(std::move(open_on_disk)) {}

  // Opens the catalog and decides whether it belongs to the recovered journal. Only reads its
  // contents: startup may still be refused. A shortage is an error.
  Status open(const RecoveredStore& store);
  // After open(): the catalog belongs to the journal, and has records after the journal's last one.
  bool is_ahead_of(uint64_t last_sequence) const;
  // Call this once startup continues with this journal. Moves a catalog of another store, or of
  // another history of this store, aside; clears an unreadable one if the journal can fill it.
  // Afterwards `catalog()` may lack records, or be damaged: see its health(). On a full disk the
  // catalog on disk is only read: continue_without_disk() follows before anything is written.
  Status settle();
  Catalog* catalog() { return catalog_.get(); }
  // On a full disk: continues with an empty index in memory.
  Status continue_without_disk();
  // Clears the catalog on disk before its journal is replaced: before open(), and after it.
  // kResourceExhausted: the disk has no room for a new one; the old one still exists.
  Status open_and_clear() const;
  Status clear_on_disk();

  // Repairs a catalog that could not be read or written, or lacks records, from the journal.
  // Causes may last: retries happen less and less often, and the last error is returned in
  // between.
  Status heal(Time now, const Journal& journal);
  // heal(), and the return to disk once there is room.
  void tick(Time now, const Journal& journal);
  // Clears the catalog and fills it again.
  Status rebuild(const Journal& journal);
  // Replays the records that the catalog lacks.
  Status catch_up(const Journal& journal);
  bool in_memory() const { return store_ != nullptr && store_->in_memory(); }

 private:
  Status check_journal_whole(const Journal& journal) const;
  Status set_aside(const std::string& why);
  Status return_to_disk(const Journal& journal);
  Status take_disk(const Journal& journal, const RecoveredStore& history);

  Disk& disk_;
  const StandInStore::Open open_on_disk_;
  StandInStore* store_ = nullptr;  // owned by the catalog
  std::unique_ptr<Catalog> catalog_;
  // Between open() and settle().
  std::string foreign_;     // why it is not the journal's; empty: it is
  std::string unreadable_;  // why it must be cleared; empty: it need not
  std::chrono::milliseconds retry_after_ = limits::kCatalogRetryMin;
  Time next_retry_{};
  std::chrono::milliseconds return_after_ = limits::kCatalogReturnEvery;
  Time next_return_{};
  Status last_try_;
};

}  // namespace ckptd
