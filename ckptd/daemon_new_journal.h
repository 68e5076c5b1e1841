// A journal that takes the place of a damaged one, written beside it and put in its place in steps,
// each of which a crash may follow:
//
//   journal/unfinished.log   being written; the next one that is begun takes its place
//   journal/salvaged.log     whole, synced and read back; its last record is StoreClosed: from here
//                            on it is the truth
//   (the catalog is emptied: it counts the records of the damaged one)
//   journal/damaged-N.log    the damaged one, kept; nobody here ever deletes it
//   journal/journal.log      the new one
//
// A start that finds a salvaged.log does the rest, if it is whole and of the journal's store; else
// it is set aside as refused-N.log, and the salvage is made again. Blocking; loop thread; before
// any session exists.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckptd/daemon_store.h"
#include "ckptd/io/disk.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

class NewJournal {
 public:
  // Begins one with what the damaged journal has before its damage.
  static Result<NewJournal> begin(Disk& disk, const RecoveredStore& damaged);
  NewJournal(NewJournal&& other) noexcept;
  NewJournal& operator=(NewJournal&&) = delete;
  ~NewJournal();

  // Puts them behind; durable once it is finished.
  Status append(std::vector<ckpt::fb::RecordT> records);
  // Reads it back, up to `last_sequence`: salvaged.log.
  Status finish(uint64_t last_sequence);

 private:
  NewJournal(Disk& disk, FileId file, const ckpt::JournalEncoder::Position& end);
  void end_writes();

  Disk* disk_;
  FileId file_;
  std::unique_ptr<JournalWriter> writer_;
};

// Puts a salvaged.log in the place of journal.log, which nobody has open; `clear_catalog` empties
// the catalog. Returns the name that the damaged one has now; empty: there was no salvaged.log that
// may take its place. kCorrupt: there is no journal.log either.
Result<std::string> take_new_journal(Disk& disk, const std::function<Status()>& clear_catalog);

}  // namespace ckptd
