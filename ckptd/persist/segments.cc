#include "ckptd/persist/segments.h"

#include <chrono>

#include "ckptd/io/store_paths.h"
#include "formats/base/checked.h"

namespace ckptd {

using ckpt::kBlockBytes;

namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

Segments::Segments(Disk& disk, const Options& options, std::function<void(Segment&)> on_header)
    : disk_(disk), options_(options), on_header_(std::move(on_header)), next_(options.first) {}

Segment& Segments::at(ckpt::SegmentId segment) {
  const auto found = segments_.find(segment);
  CKPT_ASSERT_MSG(found != segments_.end(), "no such open segment");
  return *found->second;
}

// Preallocates `bytes`, or, on a disk that is nearly full, as little as will do.
Result<FileId> Segments::create_file(const std::string& path, uint64_t* bytes, uint64_t least) {
  auto file = disk_.open(path, {.create = true, .preallocate_bytes = *bytes});
  if (!file.ok() && file.error().code == ckpt::ErrorCode::kResourceExhausted && least < *bytes) {
    *bytes = least;
    file = disk_.open(path, {.create = true, .preallocate_bytes = least});
  }
  return file;
}

Result<Segment*> Segments::open(uint64_t extent_bytes) {
  if (!directory_made_) {
    CKPT_TRY(disk_.make_directory(kSegmentsDirectory));
    CKPT_TRY(disk_.sync_directory(""));
    directory_made_ = true;
  }
  const uint64_t least = kBlockBytes + extent_bytes;
  uint64_t bytes = std::max(options_.segment_bytes, least);
  const std::string path = segment_path(next_);
  CKPT_ASSIGN(const FileId file, create_file(path, &bytes, least));
  const Status named = disk_.sync_directory(kSegmentsDirectory);
  if (!named.ok()) {
    disk_.close(file);
    (void)disk_.remove(path);
    return named.error();
  }
  auto segment = std::make_unique<Segment>();
  segment->id = next_++;
  segment->file = file;
  segment->bytes = bytes;
  segment->used = kBlockBytes;
  Segment* opened = segment.get();
  segments_.emplace(opened->id, std::move(segment));
  write_header(*opened);
  return opened;
}

void Segments::write_header(Segment& segment) {
  segment.header = AlignedBuffer(kBlockBytes);
  ckpt::encode_segment_header({.store = options_.store,
                               .segment = segment.id,
                               .bytes = segment.bytes,
                               .created_ns = now_ns()},
                              segment.header.bytes());
  ++segment.writes_in_flight;
  disk_.submit({.op = IoOp::kWrite,
                .file = segment.file,
                .offset = 0,
                .memory = segment.header.bytes(),
                .on_done = [this, &segment](const Result<uint64_t>& result) {
                  --segment.writes_in_flight;
                  if (result.ok()) {
                    segment.header_written = true;
                  } else {
                    seal_off(segment, result.error());
                  }
                  on_header_(segment);
                }});
}

Result<Segments::Place> Segments::place(uint64_t bytes) {
  if (current_ != nullptr && current_->bytes - current_->used < bytes) {
    Segment* full = std::exchange(current_, nullptr);
    close_if_done(full->id);
  }
  if (current_ == nullptr && spare_ != nullptr && spare_->bytes - spare_->used >= bytes) {
    current_ = std::exchange(spare_, nullptr);
  }
  if (current_ == nullptr) {
    CKPT_ASSIGN(current_, open(bytes));
  }
  const Place place{current_, current_->used};
  current_->used += bytes;
  return place;
}

void Segments::prepare_ahead() {
  const bool needed = current_ == nullptr || current_->bytes - current_->used < current_->bytes / 2;
  if (spare_ != nullptr || !needed) return;
  auto opened = open(0);
  if (opened.ok()) spare_ = *opened;
}

void Segments::seal_off(Segment& segment, const ckpt::Error& error) {
  if (!segment.failed.has_value()) segment.failed = error;
  if (current_ == &segment) current_ = nullptr;
  if (spare_ == &segment) spare_ = nullptr;
}

void Segments::close_if_done(ckpt::SegmentId id) {
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  const Segment& segment = *found->second;
  if (&segment == current_ || &segment == spare_) return;
  if (segment.writes_in_flight > 0 || segment.unsynced_snapshots > 0) return;
  const bool empty = segment.used == kBlockBytes;
  disk_.close(segment.file);
  if (empty) (void)disk_.remove(segment_path(id));  // best effort: the next start removes it, too
  segments_.erase(found);
}

std::vector<Segment*> Segments::all() {
  std::vector<Segment*> open_segments;
  for (const auto& [id, segment] : segments_) open_segments.push_back(segment.get());
  return open_segments;
}

uint64_t Segments::unplaced_bytes() const {
  uint64_t bytes = 0;
  if (current_ != nullptr) bytes += current_->bytes - current_->used;
  if (spare_ != nullptr) bytes += spare_->bytes - spare_->used;
  return bytes;
}

void Segments::close() {
  for (const auto& [id, segment] : segments_) {
    CKPT_ASSERT(segment->writes_in_flight == 0);
    const bool empty = segment->used == kBlockBytes;
    // Best effort: what is left over is dead space, not damage.
    if (!empty) (void)disk_.truncate(segment->file, segment->used);
    disk_.close(segment->file);
    if (empty) (void)disk_.remove(segment_path(id));
  }
  segments_.clear();
  current_ = spare_ = nullptr;
}

}  // namespace ckptd
