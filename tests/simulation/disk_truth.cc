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

// Of an extent of another commit only the fragments that this one has count.
bool payload_holds(ckpt::ByteView payload, const fb::CommittedT& commit, size_t number) {
  const fb::ExtentT& extent = *commit.extents[number];
  if (extent.lineage == 0) return ckpt::base::crc32c(payload) == extent.payload_crc32c;
  return std::ranges::all_of(commit.fragments, [&](const fb::Fragment& fragment) {
    if (fragment.extent() != number) return true;
    return ckpt::base::crc32c(payload.subspan(fragment.payload_offset(), fragment.length())) ==
           fragment.crc32c();
  });
}

bool extent_holds(ckpt::ByteView file, const fb::CommittedT& commit, size_t number) {
  const fb::ExtentT& extent = *commit.extents[number];
  const auto header = ckpt::decode_segment_header(file.first(ckpt::kBlockBytes));
  if (!header.ok() || header->segment != extent.segment) return false;
  const uint64_t payload = ckpt::base::align_up(extent.payload_bytes, ckpt::kBlockBytes);
  if (extent.offset + extent.header_bytes + payload > file.size()) return false;
  const ckpt::ByteView bytes = file.subspan(extent.offset, extent.header_bytes + payload);
  return header_holds(bytes.first(extent.header_bytes), extent.header_crc32c) &&
         payload_holds(bytes.subspan(extent.header_bytes), commit, number);
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
    for (size_t i = 0; i < commit.extents.size(); ++i) {
      const ckpt::SegmentId segment = commit.extents[i]->segment;
      auto [file, added] = files.try_emplace(segment);
      if (added) file->second = read_file(world, segment_path(segment));
      const bool holds =
          file->second.size() >= ckpt::kBlockBytes && extent_holds(file->second, commit, i);
      if (!holds) spoiled.insert(point);
    }
  }
  return spoiled;
}

}  // namespace ckptd::testing
