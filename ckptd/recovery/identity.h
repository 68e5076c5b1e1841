// Startup: checks that journal and segments belong to one store, and to one history of it. Runs
// before anything is written, because startup truncates and removes what the journal does not list.
// Blocking; loop thread; before any session exists.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/disk.h"

namespace ckptd {

// A backup may omit an empty directory of segments: creates it if no commit of the journal has
// bytes in it. Otherwise kFailedPrecondition with the remedy.
Status ensure_segments_directory(Disk& disk, const RecoveredStore& store);

// Findings in the headers of the segment files.
struct SegmentFindings {
  std::map<std::string, std::vector<std::string>> foreign;  // paths, by store
  std::vector<std::string> misnamed;  // sentences: this store's segments under another's name
  std::vector<std::string> newer;     // paths; extents of a startup that the journal lacks
  // Paths; extents of an epoch that the journal lacks. An epoch is recorded before any of its
  // members can write.
  std::vector<std::string> of_other_epochs;
};
// One pass over all segment files. Skips a damaged header. A file that the system refuses to open
// or read is an error, because the result would be incomplete. Empty for a journal that does not
// name its store.
Result<SegmentFindings> read_segment_headers(Disk& disk, const RecoveredStore& store);

// Checks that all segments belong to the journal's store and have their own names.
// kFailedPrecondition names the files and the remedy; of a foreign segment, both stores.
Status check_segments_are_ours(const SegmentFindings& found, const RecoveredStore& store);

// Checks that the journal knows every startup and every epoch that wrote to the segments. If not,
// it is an older copy, or from a copy of the store that diverged, and startup would reclaim
// everything that it does not list. With a torn end, epochs are not checked. Precondition: the
// catalog is not ahead of the journal. kFailedPrecondition names the files and the remedy.
Status check_journal_is_newest(Disk& disk, const SegmentFindings& found,
                               const RecoveredStore& store);

// A marker file in the journal's directory: use this journal although it is older than the
// segments. A user creates it for that purpose, and a salvage because the new journal counts fewer
// startups. Startup removes it after reclaiming the space that the journal does not list.
inline constexpr char kOlderJournalMarker[] = "older-journal-is-meant";
Status mean_older_journal(Disk& disk);
Status forget_older_journal(Disk& disk);

}  // namespace ckptd
