#include "ckptd/recovery/identity.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/io/store_paths.h"
#include "ckptd/recovery/extent_at.h"
#include "ckptd/recovery/lost_segments.h"
#include "formats/base/hash.h"
#include "formats/segment.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;

namespace {

constexpr size_t kPathsMax = 8;  // per message

// The upper half of an extent's sequence number is the number of its startup (recovery.cc).
constexpr int kStartShift = 32;

std::string listed_names(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kPathsMax);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

Result<bool> has_marker(Disk& disk) {
  CKPT_ASSIGN(const auto names, disk.list(kJournalDirectory));
  return std::find(names.begin(), names.end(), kOlderJournalMarker) != names.end();
}

std::string marker_path() { return fmt::format("{}/{}", kJournalDirectory, kOlderJournalMarker); }

bool knows_epoch(const RecoveredStore& store, const ckpt::SnapshotKey& snapshot) {
  const auto last = store.epochs.find(snapshot.run);
  return last != store.epochs.end() && snapshot.epoch <= last->second.epoch;
}

Status check_segment_header(Disk& disk, FileId file, ckpt::SegmentId segment,
                            const RecoveredStore& store, SegmentFindings& found) {
  AlignedBuffer memory(kBlockBytes);
  const auto read = [&](uint64_t offset, uint64_t bytes) -> Result<ckpt::ByteView> {
    if (memory.size() < bytes) memory = AlignedBuffer(bytes);
    CKPT_ASSIGN(const uint64_t got, disk.read_now(file, offset, memory.bytes().first(bytes)));
    return ckpt::ByteView(memory.bytes()).first(got);
  };
  CKPT_ASSIGN(const ckpt::ByteView block, read(0, kBlockBytes));
  const auto header = ckpt::decode_segment_header(block);
  if (header.ok() && header->store != store.id) {
    found.foreign[ckpt::base::to_hex(header->store)].push_back(segment_path(segment));
    return {};
  }
  if (header.ok() && header->segment != segment) {
    found.misnamed.push_back(
        fmt::format("{} is {}", segment_path(segment), segment_path(header->segment)));
    return {};
  }
  CKPT_ASSIGN(const auto extent, extent_at(store, segment, end_of_listed(store, segment), read));
  if (!extent) return {};
  if (extent->sequence >> kStartShift > store.starts) {
    found.newer.push_back(segment_path(segment));
  } else if (!knows_epoch(store, extent->snapshot)) {
    found.of_other_epochs.push_back(segment_path(segment));
  }
  return {};
}

Status check_segment(Disk& disk, ckpt::SegmentId segment, const RecoveredStore& store,
                     SegmentFindings& found) {
  CKPT_ASSIGN(const FileId file, disk.open(segment_path(segment), {}));
  const Status checked = check_segment_header(disk, file, segment, store, found);
  disk.close(file);
  return checked;
}

}  // namespace

Status ensure_segments_directory(Disk& disk, const RecoveredStore& store) {
  const auto names = disk.list(kSegmentsDirectory);
  if (names.ok() || names.error().code != ErrorCode::kNotFound) {
    return names.ok() ? Status() : names.error();
  }
  if (store.has_live_extents || store.damage) {
    return make_error(
        ErrorCode::kFailedPrecondition,
        "the directory {} is missing, and commits in {} have their bytes there: "
        "nothing was changed. Put it back from the copy that {} is from; or, to continue "
        "without these bytes, make an empty directory {} and start again",
        kSegmentsDirectory, kJournalPath, kJournalPath, kSegmentsDirectory);
  }
  CKPT_TRY(disk.make_directory(kSegmentsDirectory));
  return disk.sync_directory("");
}

Result<SegmentFindings> read_segment_headers(Disk& disk, const RecoveredStore& store) {
  SegmentFindings found;
  if (store.starts == 0) return found;
  const auto names = disk.list(kSegmentsDirectory);
  if (!names.ok() && names.error().code == ErrorCode::kNotFound) return found;
  CKPT_TRY(names);
  for (const std::string& name : *names) {
    const auto segment = segment_of_name(name);
    if (!segment) continue;
    const Status checked = check_segment(disk, *segment, store, found);
    if (checked.ok()) continue;
    if (!is_data_loss(checked.error())) {
      return make_error(checked.error().code,
                        "{}: whether it belongs to {} cannot be told, so nothing was changed: make "
                        "it readable for ckptd, and start again",
                        checked.error().message, kJournalPath);
    }
    spdlog::warn("{}", checked.error().message);
  }
  return found;
}

Status check_segments_are_ours(const SegmentFindings& found, const RecoveredStore& store) {
  if (!found.misnamed.empty()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "segment files have wrong names: by its header, {}: nothing was changed. "
                      "Give each file its own name back, or move copies out of the data directory",
                      listed_names(found.misnamed));
  }
  if (found.foreign.empty()) return {};
  const auto& [other, paths] = *found.foreign.begin();
  return make_error(ErrorCode::kFailedPrecondition,
                    "{} belongs to store {}, but {} to store {}: nothing was changed. Put the "
                    "journal of store {} back, or move these segments out of the data directory",
                    kJournalPath, ckpt::base::to_hex(store.id), listed_names(paths), other, other);
}

Status check_journal_is_newest(Disk& disk, const SegmentFindings& found,
                               const RecoveredStore& store) {
  const bool of_others = found.newer.empty() && store.torn_bytes == 0;
  const auto& paths = of_others ? found.of_other_epochs : found.newer;
  if (paths.empty()) return {};
  CKPT_ASSIGN(const bool meant, has_marker(disk));
  if (meant) return {};
  return make_error(
      ErrorCode::kFailedPrecondition,
      "{} is older than the segments{}: {} have snapshots of {}: nothing was changed. "
      "Put the newest journal of store {} back; or, to continue with this one and give "
      "up the snapshots that it does not list, make an empty file {}/{} and start "
      "again",
      kJournalPath, of_others ? ", or of another copy of the store" : "", listed_names(paths),
      of_others ? "an epoch that it has no record of"
                : "a later start of ckptd than its last record",
      ckpt::base::to_hex(store.id), kJournalDirectory, kOlderJournalMarker);
}

Status mean_older_journal(Disk& disk) {
  CKPT_ASSIGN(const bool there, has_marker(disk));
  if (there) return {};
  CKPT_TRY(disk.create_file(marker_path(), 0));
  return {};
}

Status forget_older_journal(Disk& disk) {
  CKPT_ASSIGN(const bool there, has_marker(disk));
  if (!there) return {};
  CKPT_TRY(disk.remove(marker_path()));
  return disk.sync_directory(kJournalDirectory);
}

}  // namespace ckptd
