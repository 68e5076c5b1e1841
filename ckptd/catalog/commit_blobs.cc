// Blobs of a commit record, checked: the record may come from a damaged or forged journal.
#include <algorithm>
#include <map>
#include <set>

#include "ckptd/catalog/blobs.h"
#include "ckptd/catalog/commit_places.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

using Places = std::map<ckpt::UnitId, std::vector<FragmentPlace>>;

// Checks the list on its own: ids ascending, and each rank's blobs within their bounds.
Status check_list(const fb::CommittedT& commit) {
  std::map<ckpt::Rank, std::vector<ckpt::BlobSpec>> by_rank;
  std::vector<ckpt::BlobSpec> global;
  if (commit.blobs.size() > ckpt::kBlobsPerCommitMax) {
    return contradiction("step {}: {} blobs", commit.step, commit.blobs.size());
  }
  ckpt::UnitId previous = 0;
  for (const auto& blob : commit.blobs) {
    if (!ckpt::is_blob(blob->id) || blob->id <= previous) {
      return contradiction("step {}: blob {} has id {}", commit.step, blob->name, blob->id);
    }
    previous = blob->id;
    const ckpt::BlobSpec spec{blob->name, blob->bytes, blob->global};
    by_rank[ckpt::rank_of_blob(blob->id)].push_back(spec);
    if (blob->global) global.push_back({blob->name, 0, true});
  }
  for (const auto& [rank, blobs] : by_rank) {
    const Status checked = ckpt::check_blobs(blobs);
    if (!checked.ok()) {
      return contradiction("step {} rank {}: {}", commit.step, rank, checked.error().message);
    }
  }
  const Status checked = ckpt::check_blobs(global);
  if (checked.ok()) return {};
  return contradiction("step {}: global {}", commit.step, checked.error().message);
}

Result<Places> places_of_blobs(const fb::CommittedT& commit) {
  Places places;
  std::set<ckpt::UnitId> ids;
  for (const auto& blob : commit.blobs) ids.insert(blob->id);
  for (const fb::Fragment& fragment : commit.blob_fragments) {
    const ckpt::UnitId id = fragment.unit();
    if (!ids.contains(id)) {
      return contradiction("step {}: a fragment of blob {}, which it does not list", commit.step,
                           id);
    }
    auto place = place_of(commit, fragment, {}, std::nullopt);
    if (!place.ok()) {
      return contradiction("step {} blob {}: {}", commit.step, id, place.error().message);
    }
    const fb::ExtentT& extent = *commit.extents[fragment.extent()];
    if (fragment.codec() != 0 || ckpt::is_shared(extent) || extent.rank != ckpt::rank_of_blob(id)) {
      return contradiction("step {} blob {}: encoded, or in an extent of another writer",
                           commit.step, id);
    }
    places[id].push_back(std::move(place).value());
  }
  return places;
}

}  // namespace

Result<std::vector<CommitBlob>> blobs_of(const fb::CommittedT& commit) {
  CKPT_TRY(check_list(commit));
  CKPT_ASSIGN(Places places, places_of_blobs(commit));
  std::vector<CommitBlob> blobs;
  blobs.reserve(commit.blobs.size());
  for (const auto& blob : commit.blobs) {
    CommitBlob listed{.name = blob->name, .global = blob->global, .version = {}};
    listed.version.unit = blob->id;
    listed.version.snapshot = ckpt::key_of(commit);
    listed.version.bytes = blob->bytes;
    listed.version.fragments = std::move(places[blob->id]);
    std::ranges::sort(listed.version.fragments, {}, &FragmentPlace::offset);
    ckpt::UnitSpec spec;
    spec.name = listed.label();
    spec.bytes = blob->bytes;
    CKPT_TRY(check_coverage(spec, listed.version.fragments));
    listed.version.crc32c = unit_crc32c(listed.version.fragments);
    blobs.push_back(std::move(listed));
  }
  return blobs;
}

}  // namespace ckptd
