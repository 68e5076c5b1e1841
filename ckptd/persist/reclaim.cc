#include "ckptd/persist/reclaim.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/store_paths.h"
#include "formats/base/checked.h"
#include "formats/segment.h"

namespace ckptd {

namespace {

using ckpt::kBlockBytes;
// A stretch counts as reclaimed if samples at its beginning and at this interval read as zeros.
// Every hole is all zeros; no state of a model is.
constexpr uint64_t kSampleEveryBytes = 1u << 20;

Result<bool> has_bytes(Disk& disk, FileId file, const ExtentPlace& stretch) {
  AlignedBuffer block(kBlockBytes);
  for (uint64_t at = 0; at < stretch.bytes; at += kSampleEveryBytes) {
    CKPT_ASSIGN(const uint64_t read, disk.read_now(file, stretch.offset + at, block.bytes()));
    const auto bytes = block.bytes().first(read);
    const bool zeros = std::all_of(bytes.begin(), bytes.end(),
                                   [](std::byte byte) { return byte == std::byte{0}; });
    if (!zeros) return true;
  }
  return false;
}

// Gaps from the segment's header to the last listed extent.
std::vector<ExtentPlace> stretches_between(ckpt::SegmentId segment,
                                           std::vector<ExtentPlace> listed) {
  std::sort(listed.begin(), listed.end(),
            [](const ExtentPlace& a, const ExtentPlace& b) { return a.offset < b.offset; });
  std::vector<ExtentPlace> stretches;
  uint64_t at = kBlockBytes;
  for (const ExtentPlace& extent : listed) {
    if (extent.offset > at) stretches.push_back({segment, at, extent.offset - at});
    at = std::max(at, extent.offset + extent.bytes);
  }
  return stretches;
}

Status cut(Disk& disk, FileId file, const std::string& path, uint64_t end) {
  CKPT_ASSIGN(const uint64_t size, disk.size(file));
  if (size <= end) return {};
  spdlog::info("{}: {} bytes after its last commit are given back", path, size - end);
  return disk.truncate(file, end);
}

// Owner of a file that has the name of a segment.
enum class Owner : uint8_t {
  kStore,    // its header says so
  kNobody,   // its first block is zeros: the header of a new segment was not written
  kUnknown,  // any other
};

Result<Owner> owner_of(Disk& disk, FileId file, ckpt::SegmentId segment,
                       const ckpt::base::Hash128& store) {
  AlignedBuffer block(kBlockBytes);
  CKPT_ASSIGN(const uint64_t read, disk.read_now(file, 0, block.bytes()));
  const ckpt::ByteView bytes = block.bytes().first(read);
  const auto header = ckpt::decode_segment_header(bytes);
  if (!header.ok()) return ckpt::base::all_zero(bytes) ? Owner::kNobody : Owner::kUnknown;
  return header->store == store && header->segment == segment ? Owner::kStore : Owner::kUnknown;
}

// Truncates the segment; adds the gaps between its listed extents to `left`.
Status reclaim_in(Disk& disk, FileId file, ckpt::SegmentId segment, std::vector<ExtentPlace> listed,
                  std::vector<ExtentPlace>& left) {
  uint64_t end = 0;
  for (const ExtentPlace& extent : listed) end = std::max(end, extent.offset + extent.bytes);
  Status status = cut(disk, file, segment_path(segment), end);
  for (const ExtentPlace& stretch : stretches_between(segment, std::move(listed))) {
    if (!status.ok()) break;
    const auto bytes = has_bytes(disk, file, stretch);
    if (!bytes.ok()) status = bytes.error();
    if (bytes.ok() && *bytes) left.push_back(stretch);
  }
  return status;
}

// Removes the file unless the journal lists extents in it; then truncates it, and adds its gaps to
// `left`.
Status reclaim_file(Disk& disk, const ckpt::base::Hash128& store, ckpt::SegmentId segment,
                    ListedExtents& listed, std::vector<ExtentPlace>& left) {
  const std::string path = segment_path(segment);
  const auto found = listed.find(segment);
  const bool needed = found != listed.end();
  CKPT_ASSIGN(const FileId file, disk.open(path, {}));
  const Result<Owner> owner = owner_of(disk, file, segment, store);
  Status status = owner.ok() ? Status() : owner.error();
  if (owner.ok() && needed && *owner != Owner::kStore) {
    status = ckpt::make_error(ckpt::ErrorCode::kCorrupt, "its header is damaged");
  }
  if (status.ok() && needed) {
    status = reclaim_in(disk, file, segment, std::move(found->second), left);
  }
  disk.close(file);
  if (!status.ok() || needed) return status;
  if (*owner == Owner::kUnknown) {
    spdlog::warn(
        "{}: left as it is: its header is not that of a segment; if the file is of no use, "
        "move it out of the data directory",
        path);
    return {};
  }
  spdlog::info("{}: removed, no commit has bytes in it", path);
  return disk.remove(path);
}

}  // namespace

Result<Reclaimed> reclaim_unlisted(Disk& disk, const ckpt::base::Hash128& store,
                                   ListedExtents listed) {
  Reclaimed reclaimed;
  CKPT_ASSIGN(const auto names, disk.list(kSegmentsDirectory));
  for (const std::string& name : names) {
    const auto segment = segment_of_name(name);
    if (!segment) continue;
    const Status done = reclaim_file(disk, store, *segment, listed, reclaimed.left);
    if (done.ok()) continue;
    reclaimed.complete = false;
    spdlog::warn("{}: space was not given back: {}", segment_path(*segment), done.error().message);
  }
  CKPT_TRY(disk.sync_directory(kSegmentsDirectory));
  return reclaimed;
}

}  // namespace ckptd
