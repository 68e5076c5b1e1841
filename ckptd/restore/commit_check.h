// CommitCheck: what is to be read of a commit, and the names of what turns out wrong. Pure: it is
// read by an ExtentReader.
//
// Damage that is in no fragment (header, gaps, padding) is reported with the first unit of the
// extent. Each unit is reported once; so is a segment file whose header is damaged. Commits that
// recovery marked damaged are always reported. Of a deleted commit only what views of others need
// is looked at, and the header before it. Bytes that the system refused to read are reported as
// unchecked: they may be intact.
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

// An error of the journal: of no run, and its path is the unit.
VerifyError error_of_journal(std::string reason, bool damage);
// The catalog cannot be read, so nobody knows what is to be checked: of no run, unit "catalog".
VerifyError unchecked_for_want_of_catalog(const ckpt::Error& why);

class CommitCheck {
 public:
  // As the catalog has it now; nullopt: there is nothing of it (any more). The error of a catalog
  // that cannot be read.
  static Result<std::optional<CommitCheck>> load(const Catalog& catalog,
                                                 const ckpt::base::Hash128& store, ckpt::RunId run,
                                                 ViewPoint point);

  size_t extents() const { return headers_.size(); }
  // The commit that wrote it, if it is not this one.
  std::optional<ckpt::SnapshotKey> other_writer(size_t extent) const;
  ExtentPosition position(size_t extent) const;
  ExtentCheck check(size_t extent) const;
  // What an extent turned out to have that is new.
  std::vector<VerifyError> errors(size_t extent, const ExtentReader::Outcome& outcome);
  // After the last extent: damage that recovery saw counts, even if the bytes are right now.
  std::vector<VerifyError> last_errors() const;

 private:
  VerifyError error(std::optional<ckpt::UnitId> unit, std::string reason, bool damage = true) const;
  // The unit's bytes in the extent.
  DamagedBytes bytes_of(size_t extent, std::optional<ckpt::UnitId> unit) const;

  ckpt::fb::CommittedT record_;
  CommitInfo info_;
  std::string run_name_;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> units_;
  std::vector<ckpt::ExtentHeader> headers_;
  std::map<std::string, bool> reported_;        // units; true: as damaged
  std::set<ckpt::SegmentId> damaged_segments_;  // whose headers were reported
};

}  // namespace ckptd
