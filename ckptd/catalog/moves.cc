#include "ckptd/catalog/moves.h"

#include <algorithm>
#include <set>

#include "ckptd/catalog/commit_places.h"

namespace ckptd {
namespace {

namespace fb = ckpt::fb;

// The extents and fragments of `moved` as a CommittedT, for the functions that read commits.
fb::CommittedT as_commit(const fb::MovedT& moved) {
  fb::CommittedT commit;
  ckpt::set_key(commit, ckpt::key_of(moved));
  for (const auto& extent : moved.extents) {
    commit.extents.push_back(std::make_unique<fb::ExtentT>(*extent));
  }
  commit.fragments = moved.fragments;
  commit.encoded = moved.encoded;
  return commit;
}

class Mover {
 public:
  Mover(const Catalog::Impl& catalog, const fb::MovedT& moved, Change& change)
      : catalog_(catalog), moved_(moved), change_(change), units_(*change.run->units) {}

  Status move(uint64_t sequence, SpaceLedger& space) {
    auto commit = catalog_.read_commit(moved_.run, moved_.lineage, moved_.step);
    const ckpt::SnapshotKey key = ckpt::key_of(moved_);
    if (!commit || commit->info.snapshot != key || commit->info.damaged) {
      return wrong("it moves bytes of no commit");
    }
    // Versions of ckptd that wrote moves did not know blobs.
    if (!commit->blobs.empty()) return wrong("it moves bytes of a commit with blobs");
    CKPT_TRY(take_extents(*commit));
    CKPT_ASSIGN(const PlacesByUnit places, places_of_fragments(as_commit(moved_), units_));
    CKPT_TRY(move_versions(commit->info, places));
    std::vector<FragmentPlace> all;
    for (const auto& [unit, of_unit] : places)
      all.insert(all.end(), of_unit.begin(), of_unit.end());
    space.move(*commit, from_, to_, all);
    commit->info.moved = sequence;
    change_.put(Family::kCommits,
                keys::commit(key.run, keys::CommitIndex::kCommit, key.lineage, key.step),
                values::encode(*commit));
    return {};
  }

 private:
  ckpt::Error wrong(std::string_view what) const {
    return contradiction("run {} step {}: {}", change_.run->info.name, moved_.step, what);
  }

  // Extents that are moved away must belong to this commit alone; target extents must be new to it.
  Status take_extents(const values::CommitValue& commit) {
    std::set<ExtentBegin> left;
    for (const fb::ExtentAt& at : moved_.from) left.insert({at.segment(), at.offset()});
    std::set<ExtentBegin> known;
    for (const fb::ExtentT& extent : commit.extents) {
      known.insert({extent.segment, extent.offset});
      if (!left.contains({extent.segment, extent.offset})) continue;
      const bool shared =
          ckpt::is_shared(extent) || catalog_.others_hold(moved_.run, extent.segment, extent.offset,
                                                          {moved_.lineage, moved_.step});
      if (shared) return wrong("it moves bytes that another commit has, too");
      from_.push_back(extent);
    }
    if (from_.empty() || from_.size() != moved_.from.size()) {
      return wrong("it moves bytes out of extents that it does not have");
    }
    for (const auto& extent : moved_.extents) {
      const bool is_new = known.insert({extent->segment, extent->offset}).second;
      if (!is_new || ckpt::is_shared(*extent)) return wrong("it moves bytes to where others lie");
      to_.push_back(*extent);
    }
    return {};
  }

  bool leaves(const FragmentPlace& place) const {
    return std::any_of(from_.begin(), from_.end(), [&place](const fb::ExtentT& extent) {
      return extent.segment == place.segment && extent.offset == place.extent_offset;
    });
  }

  // In each unit, the new places must replace the old ones exactly: same coverage, same CRC. Only
  // units with bytes in the moved extents may change.
  Status move_versions(const CommitInfo& info, const PlacesByUnit& places) {
    size_t moved_units = 0;
    for (const ckpt::UnitId unit : info.units) {
      auto version = catalog_.read_version(moved_.run, unit, moved_.lineage, moved_.step);
      if (!version) return wrong("a version of it is missing");
      const size_t gone = std::erase_if(
          version->places, [this](const FragmentPlace& place) { return leaves(place); });
      const auto now = places.find(unit);
      if (gone == 0 && now == places.end()) continue;
      if (now != places.end()) {
        version->places.insert(version->places.end(), now->second.begin(), now->second.end());
        ++moved_units;
      }
      std::ranges::sort(version->places, {}, &FragmentPlace::offset);
      CKPT_TRY(check_coverage(units_[unit], version->places));
      if (unit_crc32c(version->places) != version->crc32c) {
        return wrong("it moves bytes that are others then");
      }
      change_.put(Family::kVersions, keys::version(moved_.run, unit, moved_.lineage, moved_.step),
                  values::encode(*version));
    }
    if (moved_units != places.size()) return wrong("it moves units that it does not have");
    return {};
  }

  const Catalog::Impl& catalog_;
  const fb::MovedT& moved_;
  Change& change_;
  const UnitSpecs& units_;
  std::vector<fb::ExtentT> from_;
  std::vector<fb::ExtentT> to_;
};

}  // namespace

Status move_bytes(const Catalog::Impl& catalog, uint64_t sequence, const fb::MovedT& moved,
                  Change& change, SpaceLedger& space) {
  return Mover(catalog, moved, change).move(sequence, space);
}

}  // namespace ckptd
