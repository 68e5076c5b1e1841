// Reading the catalog: commits, versions, views.
#include <algorithm>

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using keys::CommitIndex;

// Extents of a commit, and the extents' numbers in its record by segment and offset.
struct ExtentsOfRecord {
  const std::vector<ckpt::fb::ExtentT>& extents;
  std::map<ExtentBegin, uint32_t> numbers = {};

  explicit ExtentsOfRecord(const std::vector<ckpt::fb::ExtentT>& of_commit) : extents(of_commit) {
    for (uint32_t i = 0; i < extents.size(); ++i) {
      numbers[{extents[i].segment, extents[i].offset}] = i;
    }
  }
  std::optional<uint32_t> number(ckpt::SegmentId segment, uint64_t offset) const {
    const auto found = numbers.find({segment, offset});
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
  }
  // Offset of the extent's payload in its segment.
  uint64_t payload(uint32_t number) const {
    return extents[number].offset + extents[number].header_bytes;
  }
};

// False if a place lies in no extent of the commit.
bool append_fragments(ckpt::UnitId unit, const std::vector<FragmentPlace>& places,
                      const ExtentsOfRecord& extents, ckpt::fb::CommittedT& record) {
  for (const FragmentPlace& place : places) {
    const auto fragment = static_cast<uint32_t>(record.fragments.size());
    const auto extent = extents.number(place.segment, place.extent_offset);
    if (!extent) return false;
    record.fragments.emplace_back(unit, *extent, place.offset, place.length,
                                  place.payload_offset - extents.payload(*extent), place.crc32c,
                                  place.codec);
    if (place.codec != 0) {
      record.encoded.emplace_back(fragment, place.encoded_crc32c, place.encoded_bytes);
    }
    if (!place.base) continue;
    const BasePlace& base = *place.base;
    const auto of_base = extents.number(base.segment, base.extent_offset);
    if (!of_base) return false;
    record.bases.emplace_back(fragment, *of_base, base.payload_offset - extents.payload(*of_base),
                              base.crc32c, base.codec, base.encoded_bytes, base.encoded_crc32c,
                              base.deltas);
  }
  return true;
}

}  // namespace

// ---- the store, with its errors latched --------------------------------------------------------

const RunEntry* Catalog::Impl::find(ckpt::RunId run) const {
  const auto found = runs.find(run);
  return found == runs.end() ? nullptr : &found->second;
}

void Catalog::Impl::damaged(Family family, std::string_view what) const {
  if (!health.ok()) return;
  health = make_error(ErrorCode::kCorrupt, "catalog: {} in {} does not verify", what,
                      family_name(family));
}

std::optional<std::string> Catalog::Impl::get(Family family, const std::string& key) const {
  auto value = store->get(family, key);
  if (value.ok()) return std::move(value).value();
  if (health.ok()) health = value.error();
  return std::nullopt;
}

std::optional<KvEntry> Catalog::Impl::seek_for_prev(Family family, const std::string& key,
                                                    const std::string& prefix) const {
  auto entry = store->seek_for_prev(family, key, prefix);
  if (entry.ok()) return std::move(entry).value();
  if (health.ok()) health = entry.error();
  return std::nullopt;
}

void Catalog::Impl::scan(Family family, const std::string& prefix, KvStore::Order order,
                         const KvStore::Visit& visit) const {
  const Status scanned = store->scan(family, prefix, order, visit);
  if (!scanned.ok() && health.ok()) health = scanned;
}

void Catalog::Impl::scan_back(Family family, const std::string& from, const std::string& prefix,
                              const KvStore::Visit& visit) const {
  const Status scanned = store->scan_back(family, from, prefix, visit);
  if (!scanned.ok() && health.ok()) health = scanned;
}

std::optional<values::CommitValue> Catalog::Impl::read_commit(ckpt::RunId run,
                                                              ckpt::LineageId lineage,
                                                              ckpt::Step step) const {
  const auto value = get(Family::kCommits, keys::commit(run, CommitIndex::kCommit, lineage, step));
  if (!value) return std::nullopt;
  auto commit = values::decode_commit(*value, run, lineage, step);
  if (!commit) damaged(Family::kCommits, fmt::format("lineage {} step {}", lineage, step));
  return commit;
}

std::optional<CommitInfo> Catalog::Impl::read_info(ckpt::RunId run, ckpt::LineageId lineage,
                                                   ckpt::Step step) const {
  const auto value = get(Family::kCommits, keys::commit(run, CommitIndex::kCommit, lineage, step));
  if (!value) return std::nullopt;
  auto info = values::decode_commit_info(*value, run, lineage, step);
  if (!info) damaged(Family::kCommits, fmt::format("lineage {} step {}", lineage, step));
  return info;
}

std::optional<values::VersionValue> Catalog::Impl::read_version(ckpt::RunId run, ckpt::UnitId unit,
                                                                ckpt::LineageId lineage,
                                                                ckpt::Step step) const {
  const auto value = get(Family::kVersions, keys::version(run, unit, lineage, step));
  if (!value) return std::nullopt;
  auto version = values::decode_version(*value);
  if (!version) damaged(Family::kVersions, fmt::format("unit number {} step {}", unit, step));
  return version;
}

// ---- commits -----------------------------------------------------------------------------------

void Catalog::visit_commits(ckpt::RunId run, const std::function<bool(const CommitInfo&)>& visit,
                            uint64_t newest) const {
  impl_->scan_back(Family::kCommits, keys::commit_sequence(run, newest),
                   keys::commits(run, CommitIndex::kSequence),
                   [&](std::string_view, std::string_view value) {
                     const auto at = keys::lineage_step_at_end(value);
                     if (!at) {
                       impl_->damaged(Family::kCommits, "an entry of the order of commits");
                       return true;
                     }
                     const auto commit = impl_->read_info(run, at->lineage, at->step);
                     return !commit || visit(*commit);
                   });
}

std::vector<CommitInfo> Catalog::commits(ckpt::RunId run) const {
  std::vector<CommitInfo> commits;
  visit_commits(run, [&](const CommitInfo& commit) {
    commits.push_back(commit);
    return true;
  });
  std::reverse(commits.begin(), commits.end());
  return commits;
}

std::optional<CommitInfo> Catalog::commit(ckpt::RunId run, ckpt::LineageId lineage,
                                          ckpt::Step step) const {
  return impl_->read_info(run, lineage, step);
}

std::optional<ckpt::fb::CommittedT> Catalog::record(ckpt::RunId run, ckpt::LineageId lineage,
                                                    ckpt::Step step) const {
  const auto info = impl_->read_info(run, lineage, step);
  if (!info || (info->deleted && info->units.empty())) return std::nullopt;
  return record_any(run, lineage, step);
}

std::optional<ckpt::fb::CommittedT> Catalog::record_any(ckpt::RunId run, ckpt::LineageId lineage,
                                                        ckpt::Step step) const {
  auto commit = impl_->read_commit(run, lineage, step);
  if (!commit) return std::nullopt;
  ckpt::fb::CommittedT record = commit->with_extents();
  record.full = record.full && !commit->info.deleted;
  const ExtentsOfRecord extents(commit->extents);
  for (const ckpt::UnitId unit : commit->info.units) {
    const auto version = impl_->read_version(run, unit, lineage, step);
    if (!version || append_fragments(unit, version->places, extents, record)) continue;
    impl_->damaged(Family::kVersions, fmt::format("unit number {} step {}", unit, step));
    return std::nullopt;
  }
  const ckpt::ExpertTokenCounts counts = expert_tokens(run, {lineage, step});
  record.expert_tokens = ckpt::tokens_to_fb(counts);
  record.expert_lost = ckpt::lost_to_fb(counts);
  return record;
}

std::vector<CommitBlob> Catalog::blobs(ckpt::RunId run, ViewPoint commit) const {
  const auto value = impl_->read_commit(run, commit.lineage, commit.step);
  if (!value || value->blobs.empty()) return {};
  auto blobs = blobs_of(value->with_extents());
  if (blobs.ok()) return std::move(blobs).value();
  impl_->damaged(Family::kCommits,
                 fmt::format("blobs of lineage {} step {}", commit.lineage, commit.step));
  return {};
}

std::vector<ckpt::fb::ExtentT> Catalog::extents(ckpt::RunId run, ViewPoint commit) const {
  auto value = impl_->read_commit(run, commit.lineage, commit.step);
  return value ? std::move(value->extents) : std::vector<ckpt::fb::ExtentT>();
}

// ---- views -------------------------------------------------------------------------------------

std::vector<Catalog::Impl::Stretch> Catalog::Impl::path(const RunEntry& run,
                                                        ViewPoint point) const {
  std::vector<Stretch> stretches;
  ckpt::LineageId lineage = point.lineage != 0 ? point.lineage : run.info.current_lineage;
  ckpt::Step newest = point.step;
  while (lineage != 0) {
    const auto found = run.lineages.find(lineage);
    if (found == run.lineages.end()) break;
    stretches.push_back({lineage, newest});
    lineage = found->second.parent;
    newest = std::min(newest, found->second.fork_step);
  }
  return stretches;
}

std::vector<ViewPoint> Catalog::path(ckpt::RunId run, ViewPoint point) const {
  std::vector<ViewPoint> path;
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return path;
  for (const Impl::Stretch& stretch : impl_->path(*entry, point)) {
    path.push_back({stretch.lineage, stretch.newest_step});
  }
  return path;
}

std::optional<UnitVersion> Catalog::Impl::newest_in(ckpt::RunId run, ckpt::UnitId unit,
                                                    const Stretch& stretch) const {
  const std::string prefix = keys::versions(run, unit, stretch.lineage);
  ckpt::Step newest = stretch.newest_step;
  while (true) {
    const auto entry =
        seek_for_prev(Family::kVersions, keys::version(run, unit, stretch.lineage, newest), prefix);
    if (!entry) return std::nullopt;
    const auto at = keys::lineage_step_at_end(entry->key);
    auto version = values::decode_version(entry->value);
    if (!at || !version) {
      damaged(Family::kVersions, fmt::format("unit number {}", unit));
      return std::nullopt;
    }
    if (!version->damaged) {
      return UnitVersion{unit,
                         {run, at->lineage, version->epoch, at->step, version->attempt},
                         version->bytes,
                         version->crc32c,
                         std::move(version->places)};
    }
    if (at->step == 0) return std::nullopt;
    newest = at->step - 1;
  }
}

std::optional<UnitVersion> Catalog::newest_version(
    ckpt::RunId run, ckpt::UnitId unit, ViewPoint point,
    const std::optional<ckpt::SnapshotKey>& before) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return std::nullopt;
  bool skipping = before.has_value();  // until the stretch that `before` lies in
  for (Impl::Stretch stretch : impl_->path(*entry, point)) {
    if (skipping) {
      if (stretch.lineage != before->lineage) continue;
      skipping = false;
      if (before->step == 0) continue;
      stretch.newest_step = std::min(stretch.newest_step, before->step - 1);
    }
    auto version = impl_->newest_in(run, unit, stretch);
    // An older version must not look like the newest if the store cannot be read.
    if (version || !impl_->health.ok()) return version;
  }
  return std::nullopt;
}

std::optional<DamagedVersion> Catalog::damaged_version(ckpt::RunId run, ckpt::UnitId unit,
                                                       ViewPoint point) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr) return std::nullopt;
  for (const Impl::Stretch& stretch : impl_->path(*entry, point)) {
    const auto newest = impl_->seek_for_prev(
        Family::kVersions, keys::version(run, unit, stretch.lineage, stretch.newest_step),
        keys::versions(run, unit, stretch.lineage));
    if (!newest) continue;
    const auto at = keys::lineage_step_at_end(newest->key);
    const auto version = values::decode_version(newest->value);
    if (!at || !version) impl_->damaged(Family::kVersions, fmt::format("unit number {}", unit));
    if (!at || !version || !version->damaged) return std::nullopt;
    const auto commit = impl_->read_info(run, at->lineage, at->step);
    if (!commit) return std::nullopt;
    return DamagedVersion{commit->snapshot, commit->reason};
  }
  return std::nullopt;
}

std::vector<UnitVersion> Catalog::versions(ckpt::RunId run, ckpt::UnitId unit) const {
  std::vector<UnitVersion> versions;
  impl_->scan(Family::kVersions, keys::versions(run, unit), KvStore::Order::kAscending,
              [&](std::string_view key, std::string_view value) {
                const auto at = keys::lineage_step_at_end(key);
                auto version = values::decode_version(value);
                if (!at || !version) {
                  impl_->damaged(Family::kVersions, fmt::format("unit number {}", unit));
                  return true;
                }
                if (version->damaged) return true;
                versions.push_back({unit,
                                    {run, at->lineage, version->epoch, at->step, version->attempt},
                                    version->bytes,
                                    version->crc32c,
                                    std::move(version->places)});
                return true;
              });
  return versions;
}

}  // namespace ckptd
