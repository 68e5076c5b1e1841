#include "ckptd/daemon_identity.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "ckptd/io/store_paths.h"
#include "formats/base/checked.h"
#include "formats/base/hash.h"
#include "formats/segment.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;

namespace {

constexpr size_t kNamesMax = 8;  // in one message

// The upper half of an extent's sequence is the number of the start that wrote it (daemon_open.cc).
constexpr int kStartShift = 32;

std::string listed_names(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// The number in the name of a segment's file; nullopt: it is not named as we name them.
std::optional<ckpt::SegmentId> number_of(const std::string& name) {
  ckpt::SegmentId segment = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), segment);
  const bool ours = parsed.ec == std::errc() &&
                    segment_path(segment) == fmt::format("{}/{}", kSegmentsDirectory, name);
  return ours ? std::optional(segment) : std::nullopt;
}

// The block at an offset; shorter, or empty, where the file ends.
Result<size_t> read_block(Disk& disk, FileId file, uint64_t offset, AlignedBuffer& block) {
  CKPT_ASSIGN(const uint64_t bytes, read_blocking(disk, file, offset, block.bytes()));
  return static_cast<size_t>(bytes);
}

// Findings in the headers of the segment files.
struct Found {
  std::map<std::string, std::vector<std::string>> foreign;  // paths, by store
  std::vector<std::string> newer;                           // have extents of an unknown start
};

// The start that wrote the extent behind all that the journal lists in the segment; 0: there is
// none, or its header does not hold.
Result<uint64_t> start_behind_listed(Disk& disk, FileId file, ckpt::SegmentId segment,
                                     const RecoveredStore& store, AlignedBuffer& block) {
  uint64_t end = kBlockBytes;
  if (const auto listed = store.listed.find(segment); listed != store.listed.end()) {
    for (const ExtentPlace& extent : listed->second) {
      end = std::max(end, extent.offset + extent.bytes);
    }
  }
  CKPT_ASSIGN(const size_t bytes, read_block(disk, file, end, block));
  if (bytes < kBlockBytes) return 0;
  auto header = ckpt::decode_extent_header(block.bytes());
  if (!header.ok() && header.error().code == ErrorCode::kInvalidArgument) {
    AlignedBuffer whole(ckpt::kExtentHeaderBytesMax);
    CKPT_ASSIGN(const uint64_t got, read_blocking(disk, file, end, whole.bytes()));
    header = ckpt::decode_extent_header(whole.bytes().first(got));
  }
  const bool ours = header.ok() && header->store == store.id && header->segment == segment &&
                    header->offset == end;
  return ours ? header->sequence >> kStartShift : uint64_t{0};
}

Status look_at(Disk& disk, ckpt::SegmentId segment, const RecoveredStore& store,
               AlignedBuffer& block, Found& found) {
  const std::string path = segment_path(segment);
  CKPT_ASSIGN(const FileId file, disk.open(path, {}));
  const auto bytes = read_block(disk, file, 0, block);
  auto header =
      ckpt::decode_segment_header(ckpt::ByteView(block.bytes()).first(bytes.ok() ? *bytes : 0));
  Result<uint64_t> start = uint64_t{0};
  if (bytes.ok() && header.ok() && header->store != store.id) {
    found.foreign[ckpt::base::to_hex(header->store)].push_back(path);
  } else if (bytes.ok()) {
    start = start_behind_listed(disk, file, segment, store, block);
  }
  disk.close(file);
  if (start.ok() && *start > store.starts) found.newer.push_back(path);
  return {};
}

// A journal that was written anew from the catalog counts fewer starts than there were; and the
// user may have said that he means the older one.
Result<bool> older_journal_is_meant(Disk& disk) {
  CKPT_ASSIGN(const auto names, disk.list(kJournalDirectory));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("damaged-") || name == kOlderJournalMeant;
  });
}

// Reads the headers of all segments, for both checks.
Result<Found> look_at_segments(Disk& disk, const RecoveredStore& store) {
  CKPT_ASSIGN(const auto names, disk.list(kSegmentsDirectory));
  AlignedBuffer block(kBlockBytes);
  Found found;
  for (const std::string& name : names) {
    const auto segment = number_of(name);
    if (!segment) continue;
    const Status looked = look_at(disk, *segment, store, block, found);
    if (!looked.ok()) spdlog::warn("{}", looked.error().message);
  }
  return found;
}

}  // namespace

Status check_segments_are_ours(Disk& disk, const RecoveredStore& store) {
  if (store.starts == 0) return {};  // a new store, or the journal does not say which one it is of
  CKPT_ASSIGN(const Found found, look_at_segments(disk, store));
  if (found.foreign.empty()) return {};
  const auto& [other, paths] = *found.foreign.begin();
  return make_error(ErrorCode::kFailedPrecondition,
                    "{} belongs to store {}, but {} to store {}: nothing was changed. Put the "
                    "journal of store {} back, or move these segments out of the data directory",
                    kJournalPath, ckpt::base::to_hex(store.id), listed_names(paths), other, other);
}

Status check_journal_is_newest(Disk& disk, const RecoveredStore& store) {
  if (store.starts == 0 || store.damage || store.torn_bytes > 0) return {};
  CKPT_ASSIGN(const bool meant, older_journal_is_meant(disk));
  if (meant) return {};
  CKPT_ASSIGN(const Found found, look_at_segments(disk, store));
  if (found.newer.empty()) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "{} is older than the segments: {} have snapshots of a later start of ckptd "
                    "than its last record: nothing was changed. Put the newest journal of store {} "
                    "back; or, to go on with this one and give up the snapshots that it does not "
                    "list, make an empty file {}/{} and start again",
                    kJournalPath, listed_names(found.newer), ckpt::base::to_hex(store.id),
                    kJournalDirectory, kOlderJournalMeant);
}

Status forget_older_journal(Disk& disk) {
  CKPT_ASSIGN(const auto names, disk.list(kJournalDirectory));
  if (std::find(names.begin(), names.end(), kOlderJournalMeant) == names.end()) return {};
  return disk.remove(fmt::format("{}/{}", kJournalDirectory, kOlderJournalMeant));
}

}  // namespace ckptd
