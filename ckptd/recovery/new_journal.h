// A journal that replaces a damaged one. It is written beside the damaged one and takes its place
// in steps; a crash may follow each step:
//
//   journal/unfinished.log   being written; the next attempt overwrites it
//   journal/salvaged.log     complete, synced and read back; its last record is StoreClosed: from
//                            now on this is the valid journal
//   (the catalog is cleared: it counts records of the damaged journal)
//   journal/damaged-N.log    the damaged journal, kept; ckptd never deletes it
//   journal/journal.log      the new journal
//
// A startup that finds a salvaged.log does the remaining steps, if the file is complete and of the
// journal's store. Otherwise the file is set aside as refused-N.log, and the salvage is repeated.
// Blocking; loop thread; before any session exists.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/disk.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

class NewJournal {
 public:
  // Starts a new journal with the damaged journal's records before the damage.
  static Result<NewJournal> begin(Disk& disk, const RecoveredStore& damaged);
  NewJournal(NewJournal&& other) noexcept;
  NewJournal& operator=(NewJournal&&) = delete;
  ~NewJournal();

  // Appends records; they are durable after finish().
  Status append(std::vector<ckpt::fb::RecordT> records);
  // Reads the journal back, up to `last_sequence`, and renames it to salvaged.log.
  Status finish(uint64_t last_sequence);

 private:
  NewJournal(Disk& disk, FileId file, const ckpt::JournalEncoder::Position& end);
  void end_writes();

  Disk* disk_;
  FileId file_;
  std::unique_ptr<JournalWriter> writer_;
};

// Moves a salvaged.log to journal.log, which must not be open; `clear_catalog` clears the catalog.
// Returns the new name of the damaged journal; empty: there was no suitable salvaged.log. kCorrupt:
// there is no journal.log either.
Result<std::string> take_new_journal(Disk& disk, const std::function<Status()>& clear_catalog);

}  // namespace ckptd
