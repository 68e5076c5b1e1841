// The store version that each kind of record needs.
#include <algorithm>

#include "formats/commit.h"
#include "formats/journal.h"
#include "formats/unit.h"
#include "formats/wire/convert.h"

namespace ckpt {
namespace {

uint32_t version_of(const fb::CommittedT& commit) {
  const bool shares = std::any_of(commit.extents.begin(), commit.extents.end(),
                                  [](const auto& extent) { return is_shared(*extent); });
  const bool tells_more = !commit.expert_tokens.empty() || !commit.alarms.empty();
  if (!commit.grown.empty()) return 11;
  if (!commit.blobs.empty() || !commit.blob_fragments.empty()) return 10;
  if (!commit.bases.empty()) return 7;
  if (shares) return 6;
  if (!commit.encoded.empty()) return 5;
  if (!commit.expert_lost.empty()) return 4;
  return tells_more ? 2 : kFirstStoreVersion;
}

uint32_t version_of(const fb::UnitsRegisteredT& registered) {
  if (registered.grown) return 11;
  const bool older =
      std::all_of(registered.units.begin(), registered.units.end(), [](const auto& unit) {
        const auto spec = wire::from_fb(*unit);
        return !spec.ok() || readable_by_version_8(*spec);
      });
  return older ? kFirstStoreVersion : 9;
}

}  // namespace

// No default: a kind that is added must be given its version here.
uint32_t store_version_of(const fb::RecordT& record) {
  using Body = fb::RecordBody;
  switch (record.body.type) {
    case Body::NONE:
    case Body::StoreOpened:
    case Body::StoreClosed:
    case Body::RunCreated:
    case Body::LineageOpened:
    case Body::EpochOpened:
    case Body::CommitDamaged:
    case Body::Tagged:
    case Body::Untagged:
      return kFirstStoreVersion;
    case Body::UnitsRegistered:
      return version_of(*record.body.AsUnitsRegistered());
    case Body::Committed:
      return version_of(*record.body.AsCommitted());
    case Body::SnapshotRefused:
      return 2;
    case Body::Deleted:
    case Body::RulesSet:
    case Body::Pinned:
    case Body::Unpinned:
    case Body::SpaceFreed:
      return 3;
    case Body::RunRemoved:
      return 5;
    case Body::Granted:
      return 6;
    case Body::Moved:
      return 8;
  }
  return kStoreFormatVersion;
}

}  // namespace ckpt
