#include "ckptd/snapshots/newest_cache.h"

#include <utility>

namespace ckptd {

using ckpt::SnapshotKey;

const NewestVersions& RunNewestCache::of(const SnapshotKey& key, size_t units) {
  static const NewestVersions unknown;
  RunNewest& newest = by_run_[key.run];
  if (newest.lineage != key.lineage || newest.versions.empty()) {
    newest = {.lineage = key.lineage,
              .versions = catalog_.newest_sums(key.run, {key.lineage, ~ckpt::Step{0}}),
              .cuts = {}};
    if (!catalog_.health().ok() || newest.versions.empty()) {
      // An incomplete index would make everything look stale.
      by_run_.erase(key.run);
      return unknown;
    }
  }
  // The growth of an open snapshot has no versions yet.
  if (newest.versions.size() < units) newest.versions.resize(units);
  return newest.versions;
}

void RunNewestCache::add(const SnapshotKey& key, const SnapshotFacts& facts,
                         const std::vector<WrittenExtent>& extents) {
  const auto found = by_run_.find(key.run);
  if (found == by_run_.end() || found->second.lineage != key.lineage) return;
  NewestVersions& versions = found->second.versions;
  if (!facts.saved.empty() && versions.size() <= facts.saved.back().first) {
    versions.resize(size_t{facts.saved.back().first} + 1);  // the commit's growth
  }
  add_versions(facts, key.lineage, versions);
  add_cuts(key, extents, found->second);
}

// Adds the cuts of units whose newest version this commit has.
void RunNewestCache::add_cuts(const SnapshotKey& key, const std::vector<WrittenExtent>& extents,
                              RunNewest& newest) const {
  const auto units = catalog_.units(key.run).value();
  std::map<ckpt::UnitId, std::vector<NewestFragments::Sum>> cut;
  for (const WrittenExtent& extent : extents) {
    for (const ckpt::ExtentFragment& fragment : extent.fragments) {
      const bool known = fragment.unit < newest.versions.size() && fragment.unit < units->size() &&
                         newest.versions[fragment.unit];
      if (!known || newest.versions[fragment.unit]->step != key.step) continue;
      if (is_whole(fragment, (*units)[fragment.unit])) {
        newest.cuts.forget(fragment.unit);
      } else {
        cut[fragment.unit].push_back(sum_of(fragment));
      }
    }
  }
  for (auto& [unit, sums] : cut) newest.cuts.set(unit, std::move(sums));
}

void RunNewestCache::epoch_ended(ckpt::RunId run, ckpt::Epoch epoch) {
  by_run_.erase(run);
  ended_epochs_[run] = epoch;
}

void RunNewestCache::forget_if_ended(const SnapshotKey& key) {
  const auto ended = ended_epochs_.find(key.run);
  if (ended != ended_epochs_.end() && key.epoch <= ended->second) by_run_.erase(key.run);
}

void add_versions(const SnapshotFacts& facts, ckpt::LineageId lineage, NewestVersions& versions) {
  for (const auto& [unit, crc] : facts.saved) {
    if (unit < versions.size() && (!versions[unit] || versions[unit]->step <= facts.step)) {
      versions[unit] = UnitSum{lineage, facts.step, crc};
    }
  }
}

}  // namespace ckptd
