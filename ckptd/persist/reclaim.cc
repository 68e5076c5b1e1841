#include "ckptd/persist/reclaim.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/store_paths.h"

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

// Truncates the segment; adds the gaps between its listed extents to `left`.
Status reclaim_in(Disk& disk, ckpt::SegmentId segment, std::vector<ExtentPlace> listed,
                  std::vector<ExtentPlace>& left) {
  uint64_t end = 0;
  for (const ExtentPlace& extent : listed) end = std::max(end, extent.offset + extent.bytes);
  const std::string path = segment_path(segment);
  CKPT_ASSIGN(const FileId file, disk.open(path, {}));
  Status status = cut(disk, file, path, end);
  for (const ExtentPlace& stretch : stretches_between(segment, std::move(listed))) {
    if (!status.ok()) break;
    const auto bytes = has_bytes(disk, file, stretch);
    if (!bytes.ok()) status = bytes.error();
    if (bytes.ok() && *bytes) left.push_back(stretch);
  }
  disk.close(file);
  return status;
}

}  // namespace

Result<Reclaimed> reclaim_unlisted(Disk& disk, ListedExtents listed) {
  Reclaimed reclaimed;
  CKPT_ASSIGN(const auto names, disk.list(kSegmentsDirectory));
  for (const std::string& name : names) {
    const auto segment = segment_of_name(name);
    if (!segment) continue;
    const std::string path = segment_path(*segment);
    const auto found = listed.find(*segment);
    if (found == listed.end()) spdlog::info("{}: removed, no commit has bytes in it", path);
    const Status done = found == listed.end()
                            ? disk.remove(path)
                            : reclaim_in(disk, *segment, std::move(found->second), reclaimed.left);
    if (done.ok()) continue;
    reclaimed.complete = false;
    spdlog::warn("{}: space was not given back: {}", path, done.error().message);
  }
  CKPT_TRY(disk.sync_directory(kSegmentsDirectory));
  return reclaimed;
}

}  // namespace ckptd
