#include "ckptd/restore/memory_view.h"

#include <algorithm>

#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

// The version's position on the path, smaller is newer; nullopt: the view does not see it.
std::optional<std::pair<size_t, ckpt::Step>> place_on(const std::vector<ViewPoint>& path,
                                                      ViewPoint commit) {
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i].lineage != commit.lineage) continue;
    if (commit.step > path[i].step) return std::nullopt;
    return std::pair(i, path[i].step - commit.step);
  }
  return std::nullopt;
}

std::optional<ViewPoint> commit_of(const std::optional<UnitVersion>& version) {
  if (!version) return std::nullopt;
  return ViewPoint{version->snapshot.lineage, version->snapshot.step};
}

}  // namespace

MemoryVersions::MemoryVersions(const Staging& staging, const Catalog& catalog, uid_t uid,
                               ckpt::RunId run)
    : staging_(staging), catalog_(catalog), uid_(uid), run_(run) {
  if (const auto units = catalog.units(run); units.ok()) units_ = *units;
}

bool MemoryVersions::counts(const ckpt::SnapshotKey& snapshot) {
  const auto [known, added] = counts_.try_emplace(snapshot, false);
  if (!added) return known->second;
  const auto commit = catalog_.commit(run_, snapshot.lineage, snapshot.step);
  const bool counts = commit && !commit->deleted && commit->snapshot == snapshot;
  if (catalog_.health().ok()) {
    known->second = counts;
  } else {
    counts_.erase(known);  // looked up again once the catalog can be read
  }
  return counts;
}

std::optional<UnitVersion> MemoryVersions::of(ckpt::UnitId unit) {
  if (units_ == nullptr || unit >= units_->size()) return std::nullopt;
  const auto held = staging_.memory_version(uid_, run_, unit);
  if (!held || !counts(held->snapshot)) return std::nullopt;
  UnitVersion version;
  version.unit = unit;
  version.snapshot = held->snapshot;
  for (const ckpt::ExtentFragment& fragment : held->fragments) {
    if (fragment.offset != version.bytes) return std::nullopt;  // part of the version was evicted
    version.crc32c = ckpt::base::crc32c_combine(version.crc32c, fragment.crc32c, fragment.length);
    version.bytes += fragment.length;
    version.fragments.push_back({.offset = fragment.offset,
                                 .length = fragment.length,
                                 .crc32c = fragment.crc32c,
                                 .codec = fragment.codec,
                                 .segment = kNoSegment,
                                 .extent_offset = 0,
                                 .payload_offset = 0});
  }
  if (version.bytes != (*units_)[unit].bytes) return std::nullopt;
  return version;
}

bool shows_memory(const std::vector<ViewPoint>& path, const std::optional<ViewPoint>& durable,
                  const std::optional<ViewPoint>& memory) {
  if (!memory) return false;
  const auto in_memory = place_on(path, *memory);
  const auto on_disk = durable ? place_on(path, *durable) : std::nullopt;
  return in_memory && (!on_disk || *in_memory < *on_disk);
}

RestoreOracle with_memory(const RestoreOracle& oracle, std::vector<ViewPoint> path,
                          std::function<std::optional<UnitVersion>(ckpt::UnitId)> memory) {
  RestoreOracle both = oracle;
  const auto durable = oracle.newest_version;
  const auto shown = [=, path = std::move(path), memory = std::move(memory)](ckpt::UnitId unit) {
    auto on_disk = durable(unit, std::nullopt);
    auto in_memory = memory(unit);
    return shows_memory(path, commit_of(on_disk), commit_of(in_memory))
               ? std::pair(std::move(in_memory), true)
               : std::pair(std::move(on_disk), false);
  };
  both.newest_version = [=](ckpt::UnitId unit, const std::optional<ckpt::SnapshotKey>& before) {
    return before ? durable(unit, before) : shown(unit).first;
  };
  // Damage on disk does not matter if memory has something newer.
  if (oracle.damaged_version) {
    both.damaged_version = [=, damaged = oracle.damaged_version](ckpt::UnitId unit) {
      return shown(unit).second ? std::nullopt : damaged(unit);
    };
  }
  return both;
}

RestoreOracle restore_oracle(const RestoreJobContext& context, uid_t uid,
                             const RestoreRequest& request) {
  RestoreOracle oracle = catalog_oracle(context.catalog, request, context.sources.places(uid));
  if (!request.memory) return oracle;
  const auto memory =
      std::make_shared<MemoryVersions>(context.staging, context.catalog, uid, request.run);
  return with_memory(oracle, context.catalog.path(request.run, request.point),
                     [memory](ckpt::UnitId unit) { return memory->of(unit); });
}

}  // namespace ckptd
