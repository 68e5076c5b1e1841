#include "tests/simulation/disk_truth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "ckptd/daemon_store.h"
#include "ckptd/io/store_paths.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd::testing {
namespace {

namespace fb = ckpt::fb;
using Bytes = std::vector<std::byte>;

Bytes read_file(World& world, const std::string& path) {
  const auto file = world.disk().open(path, {});
  if (!file.ok()) return {};
  Bytes bytes(world.disk().size(*file).value());
  EXPECT_TRUE(world.disk().read_now(*file, 0, bytes).ok());
  world.disk().close(*file);
  return bytes;
}

bool header_holds(ckpt::ByteView bytes, uint32_t crc32c) {
  const auto header = ckpt::decode_extent_header(bytes);
  if (!header.ok()) return false;
  Bytes again(ckpt::extent_header_bytes(header->fragments));
  const uint32_t crc = ckpt::encode_extent_header(*header, again);
  return crc == crc32c && std::ranges::equal(again, bytes);
}

bool extent_holds(ckpt::ByteView file, const fb::ExtentT& extent) {
  const auto header = ckpt::decode_segment_header(file.first(ckpt::kBlockBytes));
  if (!header.ok() || header->segment != extent.segment) return false;
  const uint64_t payload = ckpt::base::align_up(extent.payload_bytes, ckpt::kBlockBytes);
  if (extent.offset + extent.header_bytes + payload > file.size()) return false;
  const ckpt::ByteView bytes = file.subspan(extent.offset, extent.header_bytes + payload);
  return header_holds(bytes.first(extent.header_bytes), extent.header_crc32c) &&
         ckpt::base::crc32c(bytes.subspan(extent.header_bytes)) == extent.payload_crc32c;
}

}  // namespace

std::set<std::pair<ckpt::LineageId, ckpt::Step>> spoiled_commits(World& world) {
  // A commit that recovery found damaged may have been made again: the last one counts.
  std::map<std::pair<ckpt::LineageId, ckpt::Step>, fb::CommittedT> commits;
  const FileId journal = world.disk().open(kJournalPath, {}).value();
  const auto scan = scan_journal_file(world.disk(), journal, [&](uint64_t, const auto& record) {
    const auto* commit = record.body.AsCommitted();
    if (commit != nullptr) commits[{commit->lineage, commit->step}] = *commit;
    return Status();
  });
  EXPECT_TRUE(scan.ok());
  world.disk().close(journal);

  std::set<std::pair<ckpt::LineageId, ckpt::Step>> spoiled;
  std::map<ckpt::SegmentId, Bytes> files;
  for (const auto& [point, commit] : commits) {
    for (const auto& extent : commit.extents) {
      auto [file, added] = files.try_emplace(extent->segment);
      if (added) file->second = read_file(world, segment_path(extent->segment));
      const bool holds =
          file->second.size() >= ckpt::kBlockBytes && extent_holds(file->second, *extent);
      if (!holds) spoiled.insert(point);
    }
  }
  return spoiled;
}

}  // namespace ckptd::testing
