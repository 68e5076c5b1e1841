// Blob: named bytes of one commit, of one rank or global. A blob has no schema and no older
// version: it lives and dies with its commit.
//
// Inside its commit a blob has an id from the upper half of the unit ids, so that slabs, extents
// and restores treat its bytes like those of a unit:
//
//   bit 31 | rank (19 bits) | position in that rank's list (12 bits)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/assert.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckpt {

inline constexpr uint64_t kBlobBytesPerRankMax = 64ull << 20;  // all blobs of a rank together
inline constexpr size_t kBlobsPerCommitMax = 4096;             // of all ranks

inline constexpr UnitId kFirstBlob = 1u << 31;
inline constexpr uint32_t kBlobIndexBits = 12;
inline constexpr Rank kBlobRanksMax = kFirstBlob >> kBlobIndexBits;
static_assert(kBlobsPerCommitMax <= 1u << kBlobIndexBits);

inline bool is_blob(UnitId unit) { return unit >= kFirstBlob; }
inline UnitId blob_id(Rank rank, size_t index) {
  CKPT_ASSERT(rank < kBlobRanksMax && index < kBlobsPerCommitMax);
  return kFirstBlob | rank << kBlobIndexBits | static_cast<uint32_t>(index);
}
// Precondition of both: is_blob(id).
inline Rank rank_of_blob(UnitId id) { return (id & ~kFirstBlob) >> kBlobIndexBits; }
inline uint32_t index_of_blob(UnitId id) { return id & ((1u << kBlobIndexBits) - 1); }

// A blob as its rank declares it. Names: as those of units. A rank may have a blob of its own and a
// global one of the same name.
struct BlobSpec {
  std::string name;
  uint64_t bytes = 0;
  bool global = false;
  bool operator==(const BlobSpec&) const = default;
};

// Checks the blobs of one rank: names, sizes, their number, and that no two have the same name.
Status check_blobs(const std::vector<BlobSpec>& blobs);

// Label in messages, in place of a unit's name: "rng (blob of rank 3)", "loader (global blob)".
std::string blob_label(const std::string& name, Rank rank, bool global);

}  // namespace ckpt
