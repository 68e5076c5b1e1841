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

// On the executor. As little as will do where the disk is nearly full.
Result<Disk::NewFile> create_file(Disk& disk, const std::string& path, uint64_t* bytes,
                                  uint64_t least) {
  auto file = disk.create_file(path, *bytes);
  if (!file.ok() && file.error().code == ckpt::ErrorCode::kResourceExhausted && least < *bytes) {
    *bytes = least;
    file = disk.create_file(path, least);
  }
  return file;
}

}  // namespace

Segments::Segments(Disk& disk, Executor& executor, const Options& options,
                   std::function<void(Segment&)> on_header, std::function<void()> on_made)
    : disk_(disk),
      executor_(executor),
      options_(options),
      on_header_(std::move(on_header)),
      on_made_(std::move(on_made)),
      next_(options.first) {}

Segment& Segments::at(ckpt::SegmentId segment) {
  const auto found = segments_.find(segment);
  CKPT_ASSERT_MSG(found != segments_.end(), "no such open segment");
  return *found->second;
}

void Segments::make(uint64_t extent_bytes) {
  auto segment = std::make_shared<NewSegment>();
  segment->id = next_++;
  segment->least = kBlockBytes + extent_bytes;
  segment->bytes = std::max(options_.segment_bytes, segment->least);
  if (!directory_made_) {
    // Of a store that is new; once.
    Status status = disk_.make_directory(kSegmentsDirectory);
    if (status.ok()) status = disk_.sync_directory("");
    directory_made_ = status.ok();
    if (!status.ok()) segment->file.emplace(status.error());
  }
  making_ = true;
  executor_.run(
      [&disk = disk_, segment] {
        if (segment->file.has_value()) return;
        segment->file.emplace(
            create_file(disk, segment_path(segment->id), &segment->bytes, segment->least));
      },
      [this, segment] { made(*segment); });
}

void Segments::made(NewSegment& segment) {
  making_ = false;
  const bool awaited = std::exchange(awaited_, false);
  if (!segment.file->ok()) {
    next_ = segment.id;  // there is no such file
    if (awaited) failure_ = segment.file->error();
  } else {
    auto opened = std::make_unique<Segment>();
    opened->id = segment.id;
    opened->file = disk_.adopt(std::move(*segment.file).value());
    opened->bytes = segment.bytes;
    opened->used = kBlockBytes;
    Segment*& role = current_ == nullptr ? current_ : spare_;
    CKPT_ASSERT(role == nullptr);
    role = opened.get();
    segments_.emplace(segment.id, std::move(opened));
    write_header(*segments_.at(segment.id));
  }
  on_made_();
  failure_.reset();  // whoever waited is gone
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

Result<std::optional<Segments::Place>> Segments::place(uint64_t bytes) {
  largest_extent_ = std::max(largest_extent_, bytes);
  if (current_ != nullptr && current_->bytes - current_->used < bytes) {
    Segment* full = std::exchange(current_, nullptr);
    close_if_done(full->id);
  }
  if (current_ == nullptr && spare_ != nullptr && spare_->bytes - spare_->used >= bytes) {
    current_ = std::exchange(spare_, nullptr);
  }
  if (current_ == nullptr) {
    if (failure_.has_value()) return *std::exchange(failure_, std::nullopt);
    awaited_ = true;
    if (!making_) make(bytes);
    return std::optional<Place>();
  }
  const Place place{current_, current_->used};
  current_->used += bytes;
  return std::optional(place);
}

void Segments::prepare_ahead() {
  const bool needed = current_ == nullptr || current_->bytes - current_->used < current_->bytes / 2;
  if (spare_ == nullptr && needed && !making_) make(0);
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

uint64_t Segments::usable_bytes(const Segment* segment) const {
  if (segment == nullptr) return 0;
  const uint64_t rest = segment->bytes - segment->used;
  return rest < largest_extent_ ? 0 : rest;
}

uint64_t Segments::unplaced_bytes() const { return usable_bytes(current_) + usable_bytes(spare_); }

void Segments::close() {
  CKPT_ASSERT(!making_);
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
