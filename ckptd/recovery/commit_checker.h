// CommitChecker: whether the bytes of a replayed or salvaged commit still exist.
//
// Compares the headers of a commit's extents with its record. Opens the segment files at the first
// check, and keeps them open for the daemon: see take_segments(). Blocking; loop thread; at
// startup.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ckptd/catalog/catalog.h"
#include "ckptd/history/history.h"
#include "ckptd/history/recovered_store.h"
#include "ckptd/loop/turn.h"
#include "ckptd/restore/segment_reader.h"

namespace ckptd {

// Result of recovery's check of a commit's extents.
struct RecoveryCheck {
  std::optional<ckpt::fb::RecordT> damaged;  // the CommitDamaged record
  bool unread = false;                       // its extents could not be checked
  std::string reason;                        // of `damaged` or `unread`
};

class CommitChecker {
 public:
  CommitChecker(Disk& disk, const History& history, const Turn& turn)
      : disk_(disk), history_(history), turn_(turn) {}

  // Checks a commit of `index` and logs damage. Empty for a commit that `index` lacks, or lists as
  // damaged or deleted. Fails if `index` cannot be read.
  Result<RecoveryCheck> check(const Catalog& index, const ckpt::SnapshotKey& key, ExtentPart part,
                              bool log_at_debug);
  // The record that lifts the mark of a commit that `index` lists as damaged, if its extents are
  // there again; else nullopt. Fails if `index` cannot be read.
  Result<std::optional<ckpt::fb::RecordT>> lift_mark(const Catalog& index,
                                                     const MarkedCommit& marked);
  // Logs how many damaged commits had no line of their own. After the last check.
  void log_left_out() const;
  // The reader of this store's segments, with the files that the checks opened.
  std::unique_ptr<SegmentReader> take_segments();

 private:
  SegmentReader& segments();
  bool has_a_line(const std::string& reason);

  Disk& disk_;
  const History& history_;
  const Turn& turn_;
  std::unique_ptr<SegmentReader> segments_;  // null before the first check: the store has no name
  std::map<std::string, uint64_t> damaged_;  // commits at level error, by their missing file, or ""
};

}  // namespace ckptd
