// Segments: the files that extents are appended to, created ahead of need.
//
// A segment is one preallocated file, made on the executor, because that waits for the file system:
// the next one as soon as half of the current one is used. Its name is durable before anything is
// placed in it (directory synced); its header block is written like any payload and is durable with
// the first sync of the segment, which every commit that touches it waits for. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/executor.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

struct Segment {
  ckpt::SegmentId id = 0;
  FileId file = 0;
  uint64_t bytes = 0;  // preallocated
  uint64_t used = 0;   // header and extents placed so far
  size_t writes_in_flight = 0;
  size_t unsynced_snapshots = 0;  // that have extents in it
  bool header_written = false;
  AlignedBuffer header;
  std::optional<ckpt::Error> failed;  // sealed off: nothing more goes into it
};

class Segments {
 public:
  struct Options {
    ckpt::base::Hash128 store;
    ckpt::SegmentId first = 1;
    uint64_t segment_bytes = 1ull << 30;
    uint64_t reserve_bytes = 0;  // of the disk's free space, not to be preallocated
  };
  // on_header: a header was written, or the segment failed. on_made: place() may be asked again.
  // Both run from the loop.
  Segments(Disk& disk, Executor& executor, const Options& options,
           std::function<void(Segment&)> on_header, std::function<void()> on_made);

  // A place for an extent of `bytes`. An extent larger than a segment gets one of its own size.
  // nullopt: the next segment is being made; on_made runs when it is, and if it could not be, this
  // then tells why.
  struct Place {
    Segment* segment = nullptr;
    uint64_t offset = 0;
  };
  Result<std::optional<Place>> place(uint64_t bytes);
  // Makes the first or the next segment ahead of need, where the disk has room for a whole one. A
  // failure is not an error yet: place() tries again and reports it.
  void prepare_ahead();
  bool making() const { return making_; }

  Segment& at(ckpt::SegmentId segment);
  bool is_open(ckpt::SegmentId segment) const { return segments_.contains(segment); }
  // Nothing more is placed in it.
  void seal_off(Segment& segment, const ckpt::Error& error);
  // Closes the file once nobody needs it any more.
  void close_if_done(ckpt::SegmentId segment);
  std::vector<Segment*> all();
  // Preallocated and not yet placed: space on disk that is already ours, and no longer among the
  // `free_bytes` of the disk. Without the rest of a segment that the largest extent so far does not
  // fit into.
  uint64_t unplaced_bytes(uint64_t free_bytes) const;
  // Gives back what was preallocated and never used. Nothing is in flight.
  void close();

 private:
  // A file on its way from the executor.
  struct NewSegment {
    ckpt::SegmentId id = 0;
    uint64_t bytes = 0;  // to preallocate
    uint64_t least = 0;  // that will do on a disk that is nearly full
    std::optional<Result<Disk::NewFile>> file;
  };
  struct Failure {
    uint64_t least = 0;  // of the segment that could not be made
    ckpt::Error error;
  };
  void make(uint64_t bytes, uint64_t least, uint64_t free_bytes);
  void made(NewSegment& segment);
  bool fits(uint64_t bytes, const Disk::Space& space) const;
  uint64_t usable_bytes(const Segment* segment) const;
  void write_header(Segment& segment);

  Disk& disk_;
  Executor& executor_;
  const Options options_;
  const std::function<void(Segment&)> on_header_;
  const std::function<void()> on_made_;
  std::map<ckpt::SegmentId, std::unique_ptr<Segment>> segments_;  // open ones
  ckpt::SegmentId next_;
  Segment* current_ = nullptr;
  Segment* spare_ = nullptr;
  bool directory_made_ = false;
  bool making_ = false;
  uint64_t making_bytes_ = 0;        // how large, and
  uint64_t free_before_making_ = 0;  // what was free before
  bool awaited_ = false;             // place() waits for what is being made
  std::optional<Failure> failure_;   // of that, until place() has told it
  uint64_t largest_extent_ = 0;
};

}  // namespace ckptd
