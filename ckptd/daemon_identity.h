// Start: do the journal and the segments belong to one store, and to one history of it? Looked at
// before anything of them is written, since a start cuts and removes what the journal does not
// list. Blocking; loop thread; before any session exists.
#pragma once

#include "ckptd/daemon_store.h"
#include "ckptd/io/disk.h"

namespace ckptd {

// Are all segments of the journal's store, by the headers of their files? One whose header is
// damaged says nothing. kFailedPrecondition names the files, both stores and the remedy.
Status check_segments_are_ours(Disk& disk, const RecoveredStore& store);

// Does the journal know every start that wrote to the segments? If not, it is an older copy, and
// what it does not list would be given back to the disk. For a journal that no catalog is ahead of.
// kFailedPrecondition names the files and the remedy.
Status check_journal_is_newest(Disk& disk, const RecoveredStore& store);

// The file in the journal's directory by which the user says that he means the older journal: it
// counts for one start.
inline constexpr char kOlderJournalMeant[] = "older-journal-is-meant";
Status forget_older_journal(Disk& disk);

}  // namespace ckptd
