#include "ckptd/restore/commit_check.h"

#include <utility>

#include "ckptd/io/store_paths.h"

namespace ckptd {

VerifyError error_of_journal(std::string reason) {
  return {.run = {}, .unit = kJournalPath, .reason = std::move(reason)};
}

std::optional<CommitCheck> CommitCheck::load(const Catalog& catalog,
                                             const ckpt::base::Hash128& store, ckpt::RunId run,
                                             ViewPoint point) {
  auto record = catalog.record(run, point.lineage, point.step);
  const auto info = catalog.commit(run, point.lineage, point.step);
  const auto of_run = catalog.run(run);
  const auto specs = catalog.units(run);
  if (!record || !info || !of_run.ok() || !specs.ok()) return std::nullopt;
  CommitCheck commit;
  commit.record_ = std::move(*record);
  commit.info_ = *info;
  commit.run_name_ = of_run->name;
  commit.units_ = *specs;
  commit.headers_ = expected_headers(store, commit.record_);
  return commit;
}

ExtentPosition CommitCheck::position(size_t extent) const {
  return {record_.extents[extent]->segment, record_.extents[extent]->offset};
}

std::optional<ckpt::SnapshotKey> CommitCheck::other_writer(size_t extent) const {
  if (record_.extents[extent]->lineage == 0) return std::nullopt;
  return headers_[extent].snapshot;
}

ExtentCheck CommitCheck::check(size_t extent) const {
  const ckpt::fb::ExtentT& place = *record_.extents[extent];
  return {headers_[extent], place.header_bytes, place.header_crc32c,
          info_.deleted || place.lineage != 0 ? ExtentPart::kRest : ExtentPart::kWhole};
}

VerifyError CommitCheck::error(std::optional<ckpt::UnitId> unit, std::string reason) const {
  const bool known = unit && *unit < units_->size();
  return {run_name_, record_.lineage, record_.step, known ? (*units_)[*unit].name : "",
          std::move(reason)};
}

std::vector<VerifyError> CommitCheck::errors(size_t extent, const ExtentReader::Outcome& outcome) {
  std::vector<VerifyError> errors;
  errors.reserve(outcome.damages.size() + 1);
  const ckpt::SegmentId segment = record_.extents[extent]->segment;
  // It is none of the commit's bytes, and yet what everything in the file lies behind.
  if (!outcome.file_damage.empty() && damaged_segments_.insert(segment).second) {
    const auto& fragments = headers_[extent].fragments;
    errors.push_back(error(fragments.empty() ? std::nullopt : std::optional(fragments.front().unit),
                           fmt::format("segment {}: the header of the file is damaged: {}", segment,
                                       outcome.file_damage)));
  }
  for (const ExtentCheck::Damage& damage : outcome.damages) {
    VerifyError found = error(damage.unit, damage.reason);
    if (reported_.insert(found.unit).second) errors.push_back(std::move(found));
  }
  return errors;
}

std::vector<VerifyError> CommitCheck::last_errors() const {
  if (!info_.damaged || !reported_.empty()) return {};
  return {
      error(info_.units.empty() ? std::nullopt : std::optional(info_.units.front()), info_.reason)};
}

}  // namespace ckptd
