#include "formats/blob.h"

#include <set>
#include <utility>

#include "formats/base/printable.h"
#include "formats/unit.h"

namespace ckpt {

Status check_blobs(const std::vector<BlobSpec>& blobs) {
  if (blobs.size() > kBlobsPerCommitMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} blobs, the most is {}", blobs.size(),
                      kBlobsPerCommitMax);
  }
  std::set<std::pair<std::string_view, bool>> names;
  uint64_t bytes = 0;
  for (const BlobSpec& blob : blobs) {
    if (!is_unit_name(blob.name)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "blob {}: a blob name is 1 to {} characters of A-Z a-z 0-9 . _ - %",
                        base::printable(blob.name), kUnitNameBytesMax);
    }
    if (!names.insert({blob.name, blob.global}).second) {
      return make_error(ErrorCode::kInvalidArgument, "blob {}: declared twice", blob.name);
    }
    if (blob.bytes > kBlobBytesPerRankMax - bytes) {
      return make_error(ErrorCode::kInvalidArgument,
                        "blob {}: {} bytes, but the blobs of a rank have at most {} together",
                        blob.name, blob.bytes, kBlobBytesPerRankMax);
    }
    bytes += blob.bytes;
  }
  return ok_status();
}

std::string blob_label(const std::string& name, Rank rank, bool global) {
  return global ? fmt::format("{} (global blob)", name)
                : fmt::format("{} (blob of rank {})", name, rank);
}

}  // namespace ckpt
