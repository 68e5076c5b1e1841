// The store of a daemon at startup: finds or creates the journal, truncates its torn tail, brings
// the catalog up to date. Blocking; loop thread; before any session exists.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/history/make_record.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/disk.h"
#include "ckptd/persist/persist.h"
#include "ckptd/persist/reclaim.h"
#include "formats/journal.h"

namespace ckptd {

// Reads the journal in bounded pieces (a larger batch is read as a whole). No completion of the
// disk runs meanwhile. With `on_gap` the scan continues after damage.
Result<ckpt::JournalScan> scan_journal_file(Disk& disk, FileId file,
                                            const ckpt::OnRecord& on_record,
                                            const ckpt::OnGap& on_gap = {});

// Damage to durable records in the middle of the journal: more records follow.
struct JournalDamage {
  std::string reason;  // of the first damage, with its offset
  struct Lost {
    uint64_t first = 0;  // first unreadable record
    uint64_t last = 0;   // last unreadable record
  };
  std::vector<Lost> lost;      // ascending
  uint64_t last_sequence = 0;  // last record that is readable, or must have existed
};

// A commit in the journal: its position, and its identity.
struct CommitMark {
  uint64_t sequence = 0;
  uint64_t time_ns = 0;
  ckpt::SnapshotKey snapshot;
  bool operator==(const CommitMark&) const = default;
};
// A commit that a CommitDamaged record names.
struct MarkedCommit {
  ckpt::RunId run = 0;
  ViewPoint point;
  auto operator<=>(const MarkedCommit&) const = default;
};
inline bool earlier_mark(const CommitMark& a, const CommitMark& b) {
  return a.sequence < b.sequence;
}

struct RecoveredStore {
  ckpt::base::Hash128 id;
  FileId journal = 0;
  // Position of the next batch: after the last valid one, or before the damage.
  ckpt::JournalEncoder::Position end;
  std::optional<JournalDamage> damage;
  bool clean = true;              // the last daemon closed the store; a new store is clean
  uint64_t starts = 0;            // StoreOpened records: at least one per earlier startup
  std::vector<StartMark> opened;  // these records, ascending
  uint32_t version = ckpt::kFirstStoreVersion;  // that its records need (formats/journal.h)
  ckpt::SegmentId next_segment = 1;             // higher than in any file or record
  uint64_t torn_bytes = 0;                      // to be truncated at the journal's end
  std::map<ckpt::RunId, ckpt::fb::EpochOpenedT> epochs;  // the last one of each run
  std::set<ckpt::RunId> epochs_over;  // runs whose last epoch is over: no rejoins
  ListedExtents listed;               // of all commits ever made, including moved extents
  std::vector<CommitMark> commits;    // all ever made, ascending
  bool has_live_extents = false;      // an undeleted commit has extents
  // Marked damaged once, and neither committed again nor deleted since. The catalog says which of
  // these marks still count.
  std::set<MarkedCommit> marked;
  std::map<ckpt::RunId, uint64_t> removed;  // runs, and the records that removed them
};

// Opens the journal, or creates a new store if there is none. kVersionMismatch: written by a newer
// program; kCorrupt: segments without a journal. Damage to durable records is no error here: the
// rest is read, and nothing may be written after it. `id` is then zero if no readable record has
// it. After an error nothing was changed, except that an unfinished new store may have been
// started.
Result<RecoveredStore> recover_store(Disk& disk, uint64_t random_seed);

// Reads the whole open journal, like recover_store() at startup. A damaged journal is an error.
Result<RecoveredStore> read_journal(Disk& disk, FileId journal);

// Truncates the tail, and syncs records that were written but not synced when the last daemon died:
// from now on they count.
Status cut_torn_tail(Disk& disk, const RecoveredStore& store);

// Reads the whole journal, which must not be written meanwhile. The error names the damage, or that
// the journal ends before `last_sequence`, with file and offset.
Status check_journal(Disk& disk, FileId journal, uint64_t last_sequence);

// Applies the records that the catalog lacks, up to `last_sequence`. Damage to records that the
// catalog has is skipped.
Status replay(Disk& disk, FileId journal, uint64_t last_sequence, Catalog& catalog);

// Appends and waits until the records are durable.
Result<uint64_t> append_blocking(Disk& disk, JournalWriter& journal,
                                 std::vector<ckpt::fb::RecordT> records);

}  // namespace ckptd
