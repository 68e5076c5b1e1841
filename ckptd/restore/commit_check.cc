#include "ckptd/restore/commit_check.h"

#include <algorithm>
#include <utility>

#include "ckptd/io/store_paths.h"

namespace ckptd {

VerifyError error_of_journal(std::string reason, bool damage) {
  return {.run = {}, .unit = kJournalPath, .reason = std::move(reason), .damage = damage};
}

VerifyError unchecked_without_catalog(const ckpt::Error& why) {
  return {.run = {}, .unit = kCatalogDirectory, .reason = why.message, .damage = false};
}

Result<std::optional<CommitCheck>> CommitCheck::load(const Catalog& catalog,
                                                     const ckpt::base::Hash128& store,
                                                     ckpt::RunId run, ViewPoint point) {
  auto record = catalog.record(run, point.lineage, point.step);
  const auto info = catalog.commit(run, point.lineage, point.step);
  const auto of_run = catalog.run(run);
  const auto specs = catalog.units(run);
  CKPT_TRY(catalog.health());
  if (!record || !info || !of_run.ok() || !specs.ok()) return std::optional<CommitCheck>();
  CommitCheck commit;
  commit.record_ = std::move(*record);
  commit.info_ = *info;
  commit.run_name_ = of_run->name;
  commit.units_ = *specs;
  commit.headers_ = expected_headers(store, commit.record_);
  return std::optional(std::move(commit));
}

ExtentPosition CommitCheck::position(size_t extent) const {
  return {record_.extents[extent]->segment, record_.extents[extent]->offset};
}

std::optional<ckpt::SnapshotKey> CommitCheck::other_writer(size_t extent) const {
  if (!ckpt::is_shared(*record_.extents[extent])) return std::nullopt;
  return headers_[extent].snapshot;
}

ExtentCheck CommitCheck::check(size_t extent) const {
  const ckpt::fb::ExtentT& place = *record_.extents[extent];
  return {headers_[extent], place.header_bytes, place.header_crc32c,
          info_.deleted || ckpt::is_shared(place) ? ExtentPart::kRest : ExtentPart::kWhole};
}

VerifyError CommitCheck::error(std::optional<ckpt::UnitId> unit, std::string reason,
                               bool damage) const {
  const auto label = unit ? ckpt::label_of(record_, *units_, *unit) : std::nullopt;
  return {.run = run_name_,
          .lineage = record_.lineage,
          .step = record_.step,
          .unit = label.value_or(""),
          .reason = std::move(reason),
          .damage = damage,
          .place = {.run = record_.run}};
}

DamagedBytes CommitCheck::bytes_of(size_t extent, std::optional<ckpt::UnitId> unit) const {
  const ckpt::ExtentHeader& header = headers_[extent];
  DamagedBytes place{.run = record_.run,
                     .segment = header.segment,
                     .extent_offset = header.offset,
                     .written_by_lineage = header.snapshot.lineage,
                     .written_by_step = header.snapshot.step};
  const uint64_t payload = header.offset + record_.extents[extent]->header_bytes;
  for (const ckpt::ExtentFragment& fragment : header.fragments) {  // ascending by their places
    if (fragment.unit != unit) continue;
    if (place.bytes == 0) place.offset = payload + fragment.payload_offset;
    place.bytes = payload + fragment.payload_offset + fragment.stored_bytes() - place.offset;
  }
  return place;
}

std::vector<VerifyError> CommitCheck::errors(size_t extent, const ExtentReader::Outcome& outcome) {
  std::vector<VerifyError> errors;
  errors.reserve(outcome.findings.size() + 1);
  const ckpt::SegmentId segment = record_.extents[extent]->segment;
  // The file's header belongs to no commit, but damage there concerns every extent in the file.
  if (!outcome.file_damage.empty() && damaged_segments_.insert(segment).second) {
    const auto& fragments = headers_[extent].fragments;
    const auto first = fragments.empty() ? std::nullopt : std::optional(fragments.front().unit);
    errors.push_back(error(first, fmt::format("segment {}: the header of the file is damaged: {}",
                                              segment, outcome.file_damage)));
    errors.back().place = bytes_of(extent, first);
  }
  for (const ExtentCheck::Finding& finding : outcome.findings) {
    VerifyError found = error(finding.unit, finding.reason, finding.damage);
    found.place = bytes_of(extent, finding.unit);
    const auto [known, added] = reported_.try_emplace(found.unit, finding.damage);
    const bool worse = finding.damage && !known->second;
    known->second = known->second || finding.damage;
    if (added || worse) errors.push_back(std::move(found));
  }
  return errors;
}

std::vector<VerifyError> CommitCheck::last_errors() const {
  const bool any_reported =
      std::ranges::any_of(reported_, [](const auto& unit) { return unit.second; });
  if (!info_.damaged || any_reported) return {};
  const auto first = info_.units.empty() ? std::nullopt : std::optional(info_.units.front());
  return {error(first, info_.reason + "; a restart of ckptd checks it again")};
}

}  // namespace ckptd
