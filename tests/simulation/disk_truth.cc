#include "tests/simulation/disk_truth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "ckptd/history/recovered_store.h"
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

// Stored bytes of a fragment or a base, with their CRC32C.
struct Stored {
  uint64_t payload_offset = 0;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};
struct Written {
  fb::ExtentT extent;
  std::vector<Stored> stored;  // the parts that the commit needs
};
// Extents of a commit, by their places.
using Extents = std::map<std::pair<ckpt::SegmentId, uint64_t>, Written>;

// Adds the extents with their fragments, and with the bases of deltas.
void add_extents(const std::vector<std::unique_ptr<fb::ExtentT>>& extents,
                 const std::vector<fb::Fragment>& fragments,
                 const std::vector<fb::Encoded>& encoded, const std::vector<fb::Base>& bases,
                 Extents& to) {
  std::vector<Written*> by_number;
  for (const auto& extent : extents) {
    Written& written = to[{extent->segment, extent->offset}];
    written = {.extent = *extent, .stored = {}};
    by_number.push_back(&written);
  }
  std::map<uint32_t, fb::Encoded> of_fragment;
  for (const fb::Encoded& one : encoded) of_fragment[one.fragment()] = one;
  for (uint32_t i = 0; i < fragments.size(); ++i) {
    const fb::Fragment& fragment = fragments[i];
    const bool raw = fragment.codec() == 0;
    by_number.at(fragment.extent())
        ->stored.push_back({fragment.payload_offset(),
                            raw ? fragment.length() : of_fragment.at(i).bytes(),
                            raw ? fragment.crc32c() : of_fragment.at(i).crc32c()});
  }
  for (const fb::Base& base : bases) {
    const bool raw = base.codec() == 0;
    by_number.at(base.extent())
        ->stored.push_back({base.payload_offset(),
                            raw ? fragments.at(base.fragment()).length() : base.encoded_bytes(),
                            raw ? base.crc32c() : base.encoded_crc32c()});
  }
}

// In an extent of another commit only the parts that this commit needs are checked.
bool payload_holds(ckpt::ByteView payload, const Written& written) {
  if (written.extent.lineage == 0) {
    return ckpt::base::crc32c(payload) == written.extent.payload_crc32c;
  }
  return std::ranges::all_of(written.stored, [&](const Stored& stored) {
    return ckpt::base::crc32c(payload.subspan(stored.payload_offset, stored.bytes)) ==
           stored.crc32c;
  });
}

bool extent_holds(ckpt::ByteView file, const Written& written) {
  const fb::ExtentT& extent = written.extent;
  const auto header = ckpt::decode_segment_header(file.first(ckpt::kBlockBytes));
  if (!header.ok() || header->segment != extent.segment) return false;
  const uint64_t payload = ckpt::base::align_up(extent.payload_bytes, ckpt::kBlockBytes);
  if (extent.offset + extent.header_bytes + payload > file.size()) return false;
  const ckpt::ByteView bytes = file.subspan(extent.offset, extent.header_bytes + payload);
  return header_holds(bytes.first(extent.header_bytes), extent.header_crc32c) &&
         payload_holds(bytes.subspan(extent.header_bytes), written);
}

void scan(World& world, const std::function<void(const fb::RecordT&)>& on_record) {
  const FileId journal = world.disk().open(kJournalPath, {}).value();
  const auto scanned =
      scan_journal_file(world.disk(), journal, [&](uint64_t, const fb::RecordT& record) {
        on_record(record);
        return Status();
      });
  EXPECT_TRUE(scanned.ok());
  world.disk().close(journal);
}

}  // namespace

std::set<std::pair<ckpt::LineageId, ckpt::Step>> spoiled_commits(World& world) {
  // A commit that recovery found damaged may be committed again: the last record counts.
  std::map<std::pair<ckpt::LineageId, ckpt::Step>, Extents> commits;
  scan(world, [&commits](const fb::RecordT& record) {
    const auto* commit = record.body.AsCommitted();
    if (commit == nullptr) return;
    Extents& extents = commits[{commit->lineage, commit->step}];
    extents.clear();
    add_extents(commit->extents, commit->fragments, commit->encoded, commit->bases, extents);
  });

  std::set<std::pair<ckpt::LineageId, ckpt::Step>> spoiled;
  std::map<ckpt::SegmentId, Bytes> files;
  for (const auto& [point, extents] : commits) {
    for (const auto& [place, written] : extents) {
      auto [file, added] = files.try_emplace(place.first);
      if (added) file->second = read_file(world, segment_path(place.first));
      const bool holds =
          file->second.size() >= ckpt::kBlockBytes && extent_holds(file->second, written);
      if (!holds) spoiled.insert(point);
    }
  }
  return spoiled;
}

}  // namespace ckptd::testing
