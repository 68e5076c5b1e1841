#include "ckptd/staging/memory_level.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace ckptd {
namespace {

bool newer(const ckpt::SnapshotKey& a, const ckpt::SnapshotKey& b) {
  return std::tie(a.lineage, a.step) > std::tie(b.lineage, b.step);
}

}  // namespace

MemoryLevel::Versions::iterator MemoryLevel::erase(Versions::iterator version,
                                                   std::vector<Slab>& unwanted) {
  for (const Piece& piece : version->second.pieces) {
    const auto wanted = wanted_.find(piece.at);
    if (--wanted->second > 0) continue;
    wanted_.erase(wanted);
    unwanted.push_back(piece.at);
  }
  return versions_.erase(version);
}

std::vector<MemoryLevel::Slab> MemoryLevel::add(const ckpt::SnapshotKey& snapshot,
                                                const std::vector<Piece>& pieces) {
  std::map<ckpt::UnitId, Version> added;
  std::set<Slab> slabs;
  for (const Piece& piece : pieces) {
    Version& version = added[piece.fragment.unit];
    version.snapshot = snapshot;
    version.pieces.push_back(piece);
    slabs.insert(piece.at);
  }
  std::vector<Slab> unwanted;
  for (auto& [unit, version] : added) {
    const auto known = versions_.find({snapshot.run, unit});
    if (known != versions_.end()) {
      if (newer(known->second.snapshot, snapshot)) continue;
      erase(known, unwanted);
    }
    std::sort(version.pieces.begin(), version.pieces.end(),
              [](const Piece& a, const Piece& b) { return a.fragment.offset < b.fragment.offset; });
    for (const Piece& piece : version.pieces) ++wanted_[piece.at];
    versions_.emplace(std::pair(snapshot.run, unit), std::move(version));
  }
  for (const Slab& slab : slabs) {
    if (!wants(slab)) unwanted.push_back(slab);
  }
  return unwanted;
}

std::vector<MemoryLevel::Slab> MemoryLevel::supersede(const ckpt::SnapshotKey& snapshot,
                                                      const std::vector<ckpt::UnitId>& units) {
  std::vector<Slab> unwanted;
  for (const ckpt::UnitId unit : units) {
    const auto known = versions_.find({snapshot.run, unit});
    if (known == versions_.end() || newer(known->second.snapshot, snapshot)) continue;
    erase(known, unwanted);
  }
  return unwanted;
}

std::vector<MemoryLevel::Slab> MemoryLevel::evict(const Slab& slab) {
  std::vector<Slab> unwanted;
  for (auto version = versions_.begin(); version != versions_.end();) {
    const auto& pieces = version->second.pieces;
    const bool uses_slab = std::any_of(pieces.begin(), pieces.end(),
                                       [&](const Piece& piece) { return piece.at == slab; });
    version = uses_slab ? erase(version, unwanted) : std::next(version);
  }
  std::erase(unwanted, slab);
  return unwanted;
}

std::vector<MemoryLevel::Slab> MemoryLevel::keep(
    ckpt::RunId run, const std::function<bool(const ckpt::SnapshotKey&)>& wanted) {
  std::vector<Slab> unwanted;
  auto version = versions_.lower_bound({run, 0});
  while (version != versions_.end() && version->first.first == run) {
    version = wanted(version->second.snapshot) ? std::next(version) : erase(version, unwanted);
  }
  return unwanted;
}

const MemoryLevel::Version* MemoryLevel::find(ckpt::RunId run, ckpt::UnitId unit) const {
  const auto found = versions_.find({run, unit});
  return found == versions_.end() ? nullptr : &found->second;
}

}  // namespace ckptd
