// Start: do the journal and the segments belong to one store, and to one history of it? Looked at
// before anything of them is written, since a start cuts and removes what the journal does not
// list. Blocking; loop thread; before any session exists.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptd/daemon_store.h"
#include "ckptd/io/disk.h"

namespace ckptd {

// A backup may leave out the directory of segments while it is empty: made anew if no commit of the
// journal has bytes in it. Else kFailedPrecondition with the remedy.
Status ensure_segments_directory(Disk& disk, const RecoveredStore& store);

// Findings in the headers of the segment files.
struct SegmentFindings {
  std::map<std::string, std::vector<std::string>> foreign;  // paths, by store
  std::vector<std::string> newer;  // paths; they have extents of a start that the journal lacks
  // Paths; they have extents of an epoch that the journal lacks. An epoch is on record before any
  // of its members can write.
  std::vector<std::string> of_other_epochs;
};
// One pass over all segment files. A header that is damaged says nothing; a file that the system
// refuses to open or read is an error, since nobody may act on what is not known. Empty for a
// journal that does not say which store it is of.
Result<SegmentFindings> read_segment_headers(Disk& disk, const RecoveredStore& store);

// Are all segments of the journal's store? kFailedPrecondition names the files, both stores and the
// remedy.
Status check_segments_are_ours(const SegmentFindings& found, const RecoveredStore& store);

// Does the journal know every start and every epoch that wrote to the segments? If not, it is an
// older copy, or that of a copy of the store that went on by itself, and everything that it does
// not list would be given back to the disk. Epochs are not judged behind a torn end. Precondition:
// the catalog is not ahead of the journal. kFailedPrecondition names the files and the remedy.
Status check_journal_is_newest(Disk& disk, const SegmentFindings& found,
                               const RecoveredStore& store);

// A file in the journal's directory: this journal is meant, though it is older than the segments. A
// user makes it to say so, and a salvage because the new journal counts fewer starts. It is removed
// once a start has given back the space that the journal does not list.
inline constexpr char kOlderJournalMeant[] = "older-journal-is-meant";
Status mean_older_journal(Disk& disk);
Status forget_older_journal(Disk& disk);

}  // namespace ckptd
