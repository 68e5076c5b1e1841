// The store of a daemon at start: its journal found or created, its torn tail cut, its catalog
// brought up to date. Blocking; loop thread; before any session exists.
#pragma once

#include <map>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/disk.h"
#include "ckptd/persist/persist.h"
#include "ckptd/persist/reclaim.h"
#include "formats/journal.h"

namespace ckptd {

// Reads the journal in bounded pieces (a batch that is larger than one is read whole). No
// completion of the disk runs meanwhile.
Result<ckpt::JournalScan> scan_journal_file(Disk& disk, FileId file,
                                            const ckpt::OnRecord& on_record);

struct RecoveredStore {
  ckpt::base::Hash128 id;
  FileId journal = 0;
  ckpt::JournalEncoder::Position end;  // where the next batch goes
  bool clean = true;                   // the last daemon closed it; a new store is clean
  uint64_t starts = 0;                 // daemons that opened it before
  ckpt::SegmentId next_segment = 1;    // no file and no record has it or a higher one
  uint64_t torn_bytes = 0;             // at the journal's end, to be cut
  std::map<ckpt::RunId, ckpt::fb::EpochOpenedT> epochs;  // the last one of each run
  ListedExtents listed;  // of all commits there ever were, wherever they have lain
};

// Opens the journal, or makes a new store where there is none. kVersionMismatch: written by a newer
// program; kCorrupt: what was durable is damaged, or the journal is gone but segments are there.
// After an error nothing was changed, except that an unfinished new store may have been begun.
Result<RecoveredStore> recover_store(Disk& disk, uint64_t random_seed);

// Copies what is to be cut from the journal's end into a file beside it, durably. Returns its path.
Result<std::string> keep_torn_tail(Disk& disk, const RecoveredStore& store);
// Cuts it, and makes durable what was written and not synced when the last daemon died: it counts
// from here on.
Status cut_torn_tail(Disk& disk, const RecoveredStore& store);

// Applies the records that the catalog does not have yet, up to `last_sequence`. Returns the
// commits among them.
Result<std::vector<ckpt::SnapshotKey>> replay(Disk& disk, FileId journal, uint64_t last_sequence,
                                              Catalog& catalog);

// Appends and waits until it is durable.
Result<uint64_t> append_blocking(Disk& disk, JournalWriter& journal,
                                 std::vector<ckpt::fb::RecordT> records);

template <typename BodyT>
ckpt::fb::RecordT make_record(BodyT body) {
  ckpt::fb::RecordT record;
  record.body.Set(std::move(body));
  return record;
}

}  // namespace ckptd
