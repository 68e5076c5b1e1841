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

// On the executor. Falls back to the minimum size if the disk is nearly full.
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

void Segments::make(uint64_t bytes, uint64_t least, uint64_t free_bytes) {
  auto segment = std::make_shared<NewSegment>();
  segment->id = next_++;
  segment->bytes = bytes;
  segment->least = least;
  if (!directory_made_) {
    // Once, in a new store.
    Status status = disk_.make_directory(kSegmentsDirectory);
    if (status.ok()) status = disk_.sync_directory("");
    directory_made_ = status.ok();
    if (!status.ok()) segment->file.emplace(status.error());
  }
  making_ = true;
  making_bytes_ = bytes;
  free_before_making_ = free_bytes;
  executor_.run(
      [&disk = disk_, segment] {
        if (segment->file.has_value()) return;
        segment->file.emplace(
            create_file(disk, segment_path(segment->id), &segment->bytes, segment->least));
      },
      [this, segment] { made(*segment); });
}

// True if this much can be preallocated without touching the reserve.
bool Segments::fits(uint64_t bytes, const Disk::Space& space) const {
  return space.free_bytes - std::min(space.free_bytes, options_.reserve_bytes) >= bytes;
}

void Segments::made(NewSegment& segment) {
  making_ = false;
  const bool awaited = std::exchange(awaited_, false);
  if (!segment.file->ok()) {
    const ckpt::Error& error = segment.file->error();
    if (error.code != ckpt::ErrorCode::kAlreadyExists) next_ = segment.id;  // no such file exists
    if (awaited) failure_ = Failure{segment.least, error};
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
  failure_.reset();  // no caller waits for it now
}

void Segments::write_header(Segment& segment) {
  segment.header = AlignedBuffer(kBlockBytes);
  ckpt::encode_segment_header({.store = options_.store,
                               .segment = segment.id,
                               .bytes = segment.bytes,
                               .created_ns = now_ns()},
                              segment.header.bytes());
  segment.writes_in_flight.begun();
  disk_.submit({.op = IoOp::kWrite,
                .file = segment.file,
                .offset = 0,
                .memory = segment.header.bytes(),
                .on_done = [this, &segment](const Result<uint64_t>& result) {
                  segment.writes_in_flight.ended();
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
    const uint64_t least = kBlockBytes + bytes;
    if (failure_.has_value()) {
      const Failure failure = *std::exchange(failure_, std::nullopt);
      // The failed segment may have been larger than this caller needs.
      const bool smaller =
          failure.error.code == ckpt::ErrorCode::kResourceExhausted && least < failure.least;
      if (!smaller) return failure.error;
    }
    if (!making_) {
      CKPT_ASSIGN(const Disk::Space space, disk_.space());
      const uint64_t whole = std::max(options_.segment_bytes, least);
      make(fits(whole, space) ? whole : least, least, space.free_bytes);
    }
    awaited_ = true;
    return std::optional<Place>();
  }
  const Place place{current_, current_->used};
  current_->used += bytes;
  prepare_ahead();
  return std::optional(place);
}

void Segments::prepare_ahead() {
  const bool needed = current_ == nullptr || current_->bytes - current_->used < current_->bytes / 2;
  if (spare_ != nullptr || !needed || making_) return;
  // A nearly full disk is not filled ahead of need.
  const auto space = disk_.space();
  const uint64_t bytes = options_.segment_bytes;
  if (!space.ok() || !fits(bytes, *space)) return;
  make(bytes, bytes, space->free_bytes);
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
  if (!segment.writes_in_flight.none() || !segment.unsynced_snapshots.none()) return;
  const bool empty = segment.used == kBlockBytes;
  disk_.close(segment.file);
  if (empty) (void)disk_.remove(segment_path(id));  // best effort: the next startup removes it, too
  segments_.erase(found);
}

std::vector<Segment*> Segments::all() {
  std::vector<Segment*> open_segments;
  open_segments.reserve(segments_.size());
  for (const auto& [id, segment] : segments_) open_segments.push_back(segment.get());
  return open_segments;
}

uint64_t Segments::usable_bytes(const Segment* segment) const {
  if (segment == nullptr) return 0;
  const uint64_t rest = segment->bytes - segment->used;
  return rest < largest_extent_ ? 0 : rest;
}

uint64_t Segments::unplaced_bytes(uint64_t free_bytes) const {
  const uint64_t gone = free_before_making_ - std::min(free_before_making_, free_bytes);
  const uint64_t being_made = making_ ? std::min(making_bytes_, gone) : 0;
  return usable_bytes(current_) + usable_bytes(spare_) + being_made;
}

void Segments::close() {
  CKPT_ASSERT(!making_);
  for (const auto& [id, segment] : segments_) {
    CKPT_ASSERT(segment->writes_in_flight.none());
    const bool empty = segment->used == kBlockBytes;
    // Best effort: the rest is dead space, not damage.
    if (!empty) (void)disk_.truncate(segment->file, segment->used);
    disk_.close(segment->file);
    if (empty) (void)disk_.remove(segment_path(id));
  }
  segments_.clear();
  current_ = spare_ = nullptr;
}

}  // namespace ckptd
