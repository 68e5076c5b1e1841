// CatalogKeeper: the daemon's catalog, kept usable.
//
//   damaged, of another store      moved aside or emptied, and filled from the journal again
//   no room on the disk            index kept in memory until there is room (stand_in_store.h)
//   a shortage (descriptors, ...)  read again later; nothing is thrown away
//
// Loop thread. Everything blocks: nobody is answered from half an index.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/stand_in_store.h"
#include "ckptd/catalog/whole_read.h"
#include "ckptd/daemon.h"
#include "ckptd/daemon_store.h"
#include "ckptd/io/disk.h"
#include "ckptd/limits.h"

namespace ckptd {

class CatalogKeeper {
 public:
  // The journal that the catalog is the index of.
  struct Journal {
    FileId file = 0;
    uint64_t last_sequence = 0;  // of its records: the catalog is to have them
  };

  CatalogKeeper(Disk& disk, StandInStore::Open open_on_disk)
      : disk_(disk), open_on_disk_(std::move(open_on_disk)) {}

  // Opens the catalog and judges whether it belongs to the recovered journal. Its contents are only
  // read: the start may still be refused. A shortage is an error.
  Status open(const RecoveredStore& store);
  // After open(): the catalog belongs to the journal, and has records after its last one.
  bool knows_more_than(uint64_t last_sequence) const;
  // Once the start goes on with this journal: a catalog of another store, or of another history of
  // this one, is moved aside; one that cannot be read is emptied, if the journal can fill it.
  // `catalog()` may lack records afterwards, or be damaged: see its health(). The catalog on disk
  // is only read if the disk is full: go_on_without_disk() follows before anything is written.
  Status settle();
  Catalog* catalog() { return catalog_.get(); }
  // On a full disk: goes on with an index in memory, which is empty.
  Status go_on_without_disk();
  // Empty the catalog on disk, whose journal is about to be another: before open(), and after it.
  // kResourceExhausted: the disk has no room for a new one, and the old one is still there.
  Status open_and_clear() const;
  Status clear_on_disk();

  // A catalog that could not be read or written, or lacks records, is made good from the journal.
  // What keeps it from that may last: it is tried again less and less often, and the last error is
  // returned meanwhile.
  Status heal(Time now, const Journal& journal);
  // heal(), and back to the disk once there is room again.
  void tick(Time now, const Journal& journal);
  // Empties it and fills it again.
  Status rebuild(const Journal& journal);
  // Replays what the catalog lacks.
  Status catch_up(const Journal& journal);
  bool in_memory() const { return store_ != nullptr && store_->in_memory(); }

 private:
  Status check_journal_whole(const Journal& journal) const;
  Status set_aside(const std::string& why);
  Status return_to_disk(const Journal& journal);
  Status take_disk(const Journal& journal, const RecoveredStore& history);

  Disk& disk_;
  const StandInStore::Open open_on_disk_;
  StandInStore* store_ = nullptr;  // the catalog's
  std::unique_ptr<Catalog> catalog_;
  // Between open() and settle().
  std::string foreign_;     // why it is not the journal's; empty: it is
  std::string unreadable_;  // why it is to be emptied; empty: it is not
  std::chrono::milliseconds retry_after_ = limits::kCatalogRetryMin;
  Time next_retry_{};
  std::chrono::milliseconds return_after_ = limits::kCatalogReturnEvery;
  Time next_return_{};
  Status last_try_;
};

}  // namespace ckptd
