// The store of a daemon at start: its journal found or created, its torn tail cut, its catalog
// brought up to date. Blocking; loop thread; before any session exists.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/disk.h"
#include "ckptd/persist/persist.h"
#include "ckptd/persist/reclaim.h"
#include "formats/journal.h"

namespace ckptd {

// Reads the journal in bounded pieces (a batch that is larger than one is read whole). No
// completion of the disk runs meanwhile. With `on_gap` it goes on behind damage.
Result<ckpt::JournalScan> scan_journal_file(Disk& disk, FileId file,
                                            const ckpt::OnRecord& on_record,
                                            const ckpt::OnGap& on_gap = {});

// Damage to what was durable, in the middle of the journal: more of it follows.
struct JournalDamage {
  std::string reason;  // of the first one, with its offset
  struct Lost {
    uint64_t first = 0;  // records from this one on
    uint64_t last = 0;   // up to here cannot be read
  };
  std::vector<Lost> lost;      // ascending
  uint64_t last_sequence = 0;  // of all that can be read, or must have been there
};

// A commit as the journal has it: its position, and what tells it from others.
struct CommitMark {
  uint64_t sequence = 0;
  uint64_t time_ns = 0;
  ckpt::SnapshotKey snapshot;
  bool operator==(const CommitMark&) const = default;
};
inline bool earlier_mark(const CommitMark& a, const CommitMark& b) {
  return a.sequence < b.sequence;
}

struct RecoveredStore {
  ckpt::base::Hash128 id;
  FileId journal = 0;
  // Where the next batch goes: behind all that holds, or before the damage.
  ckpt::JournalEncoder::Position end;
  std::optional<JournalDamage> damage;
  bool clean = true;              // the last daemon closed it; a new store is clean
  uint64_t starts = 0;            // StoreOpened records: at least one for each start before
  std::vector<StartMark> opened;  // these records, ascending
  uint32_t version = ckpt::kFirstStoreVersion;  // that its records need (formats/journal.h)
  ckpt::SegmentId next_segment = 1;             // no file and no record has it or a higher one
  uint64_t torn_bytes = 0;                      // at the journal's end, to be cut
  std::map<ckpt::RunId, ckpt::fb::EpochOpenedT> epochs;  // the last one of each run
  std::set<ckpt::RunId> epochs_over;  // runs whose last one is over: nobody comes back to it
  ListedExtents listed;               // of all commits there ever were, wherever they have lain
  std::vector<CommitMark> commits;    // all there ever were, ascending
  bool has_live_extents = false;      // a commit with extents is not deleted
  std::map<ckpt::RunId, uint64_t> removed;  // runs, and the records that removed them
};

// Opens the journal, or makes a new store where there is none. kVersionMismatch: written by a newer
// program; kCorrupt: the journal is gone but segments are there. Damage to what was durable is no
// error here: the rest says what it can, and nothing may be written behind it. `id` is zero then if
// no record says it. After an error nothing was changed, except that an unfinished new store may
// have been begun.
Result<RecoveredStore> recover_store(Disk& disk, uint64_t random_seed);

// Reads the whole open journal, as recover_store() does at a start. A damaged journal is an error.
Result<RecoveredStore> read_journal(Disk& disk, FileId journal);

// Cuts it, and makes durable what was written and not synced when the last daemon died: it counts
// from here on.
Status cut_torn_tail(Disk& disk, const RecoveredStore& store);

// Reads the whole journal; nothing is written to it meanwhile. An error says what is damaged, or
// that it does not go on to `last_sequence`, and names file and offset.
Status check_journal(Disk& disk, FileId journal, uint64_t last_sequence);

// Applies the records that the catalog does not have yet, up to `last_sequence`. Damage to records
// that the catalog has is passed over.
Status replay(Disk& disk, FileId journal, uint64_t last_sequence, Catalog& catalog);

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
