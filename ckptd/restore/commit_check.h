// CommitCheck: the extents of a commit to read, and the units that turn out damaged. Pure: an
// ExtentReader does the reads.
//
// Damage outside all fragments (header, gaps, padding) is reported with the first unit of the
// extent. Each unit, and each segment file with a damaged header, is reported once. Commits that
// recovery marked damaged are always reported. For a deleted commit only the parts that views of
// other commits need are checked, and the headers before them. Bytes that the system refused to
// read are reported as unchecked: they may be intact.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/restore/extent_reader.h"

namespace ckptd {

struct VerifyError {
  std::string run;
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  std::string unit;
  std::string reason;
  bool damage = true;  // false: it could not be checked
  DamagedBytes place = {};
};

// An error of the journal: it belongs to no run, and names the journal's path as the unit.
VerifyError error_of_journal(std::string reason, bool damage);
// The catalog cannot be read, so the targets are unknown: the error has no run, unit "catalog".
VerifyError unchecked_without_catalog(const ckpt::Error& why);

class CommitCheck {
 public:
  // The commit as the catalog has it now; nullopt: nothing of the commit is left. Fails if the
  // catalog cannot be read.
  static Result<std::optional<CommitCheck>> load(const Catalog& catalog,
                                                 const ckpt::base::Hash128& store, ckpt::RunId run,
                                                 ViewPoint point);

  size_t extents() const { return headers_.size(); }
  // The commit that wrote the extent, if another one did.
  std::optional<ckpt::SnapshotKey> other_writer(size_t extent) const;
  ExtentPosition position(size_t extent) const;
  ExtentCheck check(size_t extent) const;
  // New errors of this extent, after its check.
  std::vector<VerifyError> errors(size_t extent, const ExtentReader::Outcome& outcome);
  // After the last extent: damage that recovery recorded, even if the bytes are intact now.
  std::vector<VerifyError> last_errors() const;

 private:
  VerifyError error(std::optional<ckpt::UnitId> unit, std::string reason, bool damage = true) const;
  // Place of the unit's bytes in the extent.
  DamagedBytes bytes_of(size_t extent, std::optional<ckpt::UnitId> unit) const;

  ckpt::fb::CommittedT record_;
  CommitInfo info_;
  std::string run_name_;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> units_;
  std::vector<ckpt::ExtentHeader> headers_;
  std::map<std::string, bool> reported_;        // units; true: reported as damaged
  std::set<ckpt::SegmentId> damaged_segments_;  // segments whose damaged headers were reported
};

}  // namespace ckptd
