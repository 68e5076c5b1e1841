#include "ckptd/recovery/lost_end.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "ckptd/io/store_paths.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/recovery/extent_at.h"
#include "formats/base/checked.h"
#include "formats/segment.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;

namespace {

constexpr uint64_t kScanBytes = 4u << 20;
constexpr size_t kNamesMax = 32;  // in the warning

// Searches one segment for unlisted extents, a stretch at a time.
class UnlistedExtents {
 public:
  UnlistedExtents(Disk& disk, FileId file, ckpt::SegmentId segment, const RecoveredStore& store)
      : disk_(disk), file_(file), segment_(segment), store_(store), memory_(kScanBytes) {}

  Status find(std::vector<ExtentPlace> listed, std::set<ckpt::SnapshotKey>& found) {
    CKPT_ASSIGN(const uint64_t size, disk_.size(file_));
    std::sort(listed.begin(), listed.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    uint64_t at = kBlockBytes;  // after the header of the file
    for (const ExtentPlace& extent : listed) {
      if (extent.offset > at) CKPT_TRY(find_between(at, std::min(extent.offset, size), found));
      at = std::max(at, extent.offset + extent.bytes);
    }
    return find_between(at, size, found);
  }

 private:
  Status find_between(uint64_t at, uint64_t end, std::set<ckpt::SnapshotKey>& found) {
    while (at < end) {
      CKPT_ASSIGN(const auto header,
                  extent_at(store_, segment_, at,
                            [this](uint64_t from, uint64_t bytes) { return read(from, bytes); }));
      if (header) found.insert(header->snapshot);
      at += header ? ckpt::extent_header_bytes(header->fragments) +
                         ckpt::base::align_up(header->payload_bytes, kBlockBytes)
                   : kBlockBytes;
    }
    return {};
  }
  // Bytes at `at`, fewer at the end of the file.
  Result<ckpt::ByteView> read(uint64_t at, uint64_t bytes) {
    const bool here = at >= begin_ && at + bytes <= begin_ + bytes_;
    if (!here) {
      if (memory_.size() < bytes) memory_ = AlignedBuffer(bytes);
      begin_ = at;
      CKPT_ASSIGN(bytes_, disk_.read_now(file_, at, memory_.bytes()));
    }
    const ckpt::ByteView from_there = ckpt::ByteView(memory_.bytes()).first(bytes_);
    return from_there.subspan(at - begin_, std::min(bytes, bytes_ - (at - begin_)));
  }

  Disk& disk_;
  const FileId file_;
  const ckpt::SegmentId segment_;
  const RecoveredStore& store_;
  AlignedBuffer memory_;
  uint64_t begin_ = 0;
  uint64_t bytes_ = 0;
};

Result<std::set<ckpt::SnapshotKey>> unlisted_snapshots(Disk& disk, const RecoveredStore& store) {
  std::set<ckpt::SnapshotKey> found;
  CKPT_ASSIGN(const auto names, disk.list(kSegmentsDirectory));
  for (const std::string& name : names) {
    const auto segment = segment_of_name(name);
    if (!segment) continue;
    const std::string path = segment_path(*segment);
    CKPT_ASSIGN(const FileId file, disk.open(path, {}));
    const auto listed = store.listed.find(*segment);
    const Status scanned =
        UnlistedExtents(disk, file, *segment, store)
            .find(listed == store.listed.end() ? std::vector<ExtentPlace>() : listed->second,
                  found);
    disk.close(file);
    if (!scanned.ok()) spdlog::warn("{}: {}", path, scanned.error().message);
  }
  return found;
}

// Writes the bytes into a new file beside the journal, durably. Returns its path. After an error
// the file does not exist.
Result<std::string> keep_bytes(Disk& disk, uint64_t offset, ckpt::ByteView bytes) {
  CKPT_ASSIGN(const auto names, disk.list(kJournalDirectory));
  // An interrupted startup may have left a file of this name.
  std::string name = fmt::format("lost-{}.bytes", offset);
  for (int again = 2; std::find(names.begin(), names.end(), name) != names.end(); ++again) {
    name = fmt::format("lost-{}-{}.bytes", offset, again);
  }
  const std::string path = fmt::format("{}/{}", kJournalDirectory, name);
  CKPT_ASSIGN(Disk::NewFile created, disk.create_file(path, 0));
  const FileId file = disk.adopt(std::move(created));
  Status kept = write_blocking(disk, file, 0, bytes);
  if (kept.ok()) kept = sync_blocking(disk, file);
  disk.close(file);
  if (kept.ok()) return path;
  (void)disk.remove(path);
  return kept.error();
}

bool lacks_space(const Result<std::string>& kept) {
  return !kept.ok() && kept.error().code == ErrorCode::kResourceExhausted;
}

}  // namespace

Result<LostEnd> cut_end(Disk& disk, const RecoveredStore& store, bool no_catalog) {
  LostEnd lost;
  if (store.torn_bytes > 0) {
    log_event(spdlog::level::warn, "journal_cut",
              {{"path", kJournalPath}, {"offset", store.end.offset}, {"bytes", store.torn_bytes}},
              "{}: {} bytes at {} were being written when the last daemon ended; they are cut",
              kJournalPath, store.torn_bytes, store.end.offset);
    if (no_catalog) {
      CKPT_ASSIGN(const auto found, unlisted_snapshots(disk, store));
      lost.snapshots.assign(found.begin(), found.end());
    }
  }
  if (lost.snapshots.empty()) {
    CKPT_TRY(cut_torn_tail(disk, store));
    return lost;
  }
  AlignedBuffer end(ckpt::base::align_up(store.torn_bytes, kBlockBytes));
  CKPT_TRY(disk.read_now(store.journal, store.end.offset, end.bytes()));
  auto kept = keep_bytes(disk, store.end.offset, end.bytes());
  if (!kept.ok() && !lacks_space(kept)) return kept.error();
  CKPT_TRY(cut_torn_tail(disk, store));
  if (lacks_space(kept)) kept = keep_bytes(disk, store.end.offset, end.bytes());
  if (!kept.ok() && !lacks_space(kept)) return kept.error();
  if (kept.ok()) lost.kept = *kept;
  return lost;
}

std::vector<std::string> names_of_lost(const LostEnd& lost, const Catalog& catalog) {
  std::vector<std::string> names;
  for (const ckpt::SnapshotKey& key : lost.snapshots) {
    const auto commit = catalog.commit(key.run, key.lineage, key.step);
    if (commit && commit->snapshot == key) continue;  // unneeded extent of an existing commit
    const auto run = catalog.run(key.run);
    names.push_back(fmt::format("{}~{}@{}",
                                run.ok() ? run->name : fmt::format("run number {}", key.run),
                                key.lineage, key.step));
  }
  return names;
}

std::string lost_end_text(const LostEnd& lost, std::vector<std::string> names) {
  if (names.empty()) return {};
  const size_t left_out = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - left_out);
  return fmt::format(
      "{}: there is no catalog to say whether what was cut was durable, and snapshots without a "
      "record have bytes in segments: {}{}. They were not finished, as a crash leaves them, or "
      "their records were damaged; {}. The next start gives their space back",
      kJournalPath, fmt::join(names, ", "),
      left_out > 0 ? fmt::format(" and {} more", left_out) : "",
      lost.kept.empty() ? "the disk is too full to keep what was cut"
                        : fmt::format("what was cut is kept in {}", lost.kept));
}

}  // namespace ckptd
