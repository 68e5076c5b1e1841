// Blobs of a commit, as the catalog lists them. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckptd/catalog/versions.h"
#include "formats/base/result.h"
#include "formats/blob.h"
#include "formats/commit.h"

namespace ckptd {

struct CommitBlob {
  std::string name;
  bool global = false;
  // unit: the blob's id, which names its rank. A blob of no bytes has no fragments.
  UnitVersion version;
  bool operator==(const CommitBlob&) const = default;
  ckpt::Rank rank() const { return ckpt::rank_of_blob(version.unit); }
  std::string label() const { return ckpt::blob_label(name, rank(), global); }
};

// The blobs of a commit record, ascending by id. kCorrupt: the record contradicts itself. A blob
// lies whole and raw in extents that its own rank wrote for this commit.
ckpt::Result<std::vector<CommitBlob>> blobs_of(const ckpt::fb::CommittedT& commit);

}  // namespace ckptd
