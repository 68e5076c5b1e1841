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

// As the disk has it: by the checksum of what lies there.
struct Stored {
  uint32_t extent = 0;
  uint64_t payload_offset = 0;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

// The commit's fragments, and the bases of those that are deltas.
std::vector<Stored> stored_by(const fb::CommittedT& commit) {
  std::map<uint32_t, fb::Encoded> encoded;
  for (const fb::Encoded& one : commit.encoded) encoded[one.fragment()] = one;
  std::vector<Stored> all;
  for (uint32_t i = 0; i < commit.fragments.size(); ++i) {
    const fb::Fragment& fragment = commit.fragments[i];
    const bool raw = fragment.codec() == 0;
    all.push_back({fragment.extent(), fragment.payload_offset(),
                   raw ? fragment.length() : encoded.at(i).bytes(),
                   raw ? fragment.crc32c() : encoded.at(i).crc32c()});
  }
  for (const fb::Base& base : commit.bases) {
    const bool raw = base.codec() == 0;
    all.push_back({base.extent(), base.payload_offset(),
                   raw ? commit.fragments.at(base.fragment()).length() : base.encoded_bytes(),
                   raw ? base.crc32c() : base.encoded_crc32c()});
  }
  return all;
}

// Of an extent of another commit only what this one needs of it counts.
bool payload_holds(ckpt::ByteView payload, const fb::CommittedT& commit, size_t number) {
  const fb::ExtentT& extent = *commit.extents[number];
  if (extent.lineage == 0) return ckpt::base::crc32c(payload) == extent.payload_crc32c;
  return std::ranges::all_of(stored_by(commit), [&](const Stored& stored) {
    if (stored.extent != number) return true;
    return ckpt::base::crc32c(payload.subspan(stored.payload_offset, stored.bytes)) ==
           stored.crc32c;
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
