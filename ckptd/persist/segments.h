// Segments: the files that extents are appended to, created ahead of need.
//
// A segment is one preallocated file. It is made on the executor, because that waits for the file
// system: the next one as soon as half of the current one is used. Its name is durable before
// anything is placed in it (directory synced). Its header block is written like any payload, and is
// durable with the first sync of the segment, which every commit in it waits for. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/executor.h"
#include "ckptd/persist/persist.h"
#include "formats/base/outstanding.h"

namespace ckptd {

struct Segment {
  ckpt::SegmentId id = 0;
  FileId file = 0;
  uint64_t bytes = 0;  // preallocated
  uint64_t used = 0;   // header and extents placed so far
  ckpt::base::Outstanding writes_in_flight;
  ckpt::base::Outstanding unsynced_snapshots;  // with extents in it
  bool header_written = false;
  AlignedBuffer header;
  std::optional<ckpt::Error> failed;  // sealed off: no more extents
};

class Segments {
 public:
  struct Options {
    ckpt::base::Hash128 store;
    ckpt::SegmentId first = 1;
    uint64_t segment_bytes = 1ull << 30;
    uint64_t reserve_bytes = 0;  // part of the disk's free space that is not preallocated
  };
  // on_header: a header was written, or the segment failed. on_made: call place() again. Both run
  // from the loop.
  Segments(Disk& disk, Executor& executor, const Options& options,
           std::function<void(Segment&)> on_header, std::function<void()> on_made);

  // A place for an extent of `bytes`. An extent larger than a segment gets one of its own size.
  // nullopt: the next segment is being made. on_made runs afterwards, also after a failure, which
  // the next place() returns.
  struct Place {
    Segment* segment = nullptr;
    uint64_t offset = 0;
  };
  Result<std::optional<Place>> place(uint64_t bytes);
  // Makes the first or the next segment ahead of need, if the disk has room for a whole one. A
  // failure is no error yet: place() retries and reports it.
  void prepare_ahead();
  bool making() const { return making_; }

  Segment& at(ckpt::SegmentId segment);
  bool is_open(ckpt::SegmentId segment) const { return segments_.contains(segment); }
  // No more extents are placed in the segment.
  void seal_off(Segment& segment, const ckpt::Error& error);
  // Closes the file once it has no more use.
  void close_if_done(ckpt::SegmentId segment);
  std::vector<Segment*> all();
  // Preallocated and not yet placed: space that ckptd already owns, no longer part of the disk's
  // `free_bytes`. Without the rest of a segment that the largest extent so far does not fit
  // into.
  uint64_t unplaced_bytes(uint64_t free_bytes) const;
  // Frees preallocated space that was never used. Precondition: nothing in flight.
  void close();

 private:
  // A file that the executor is making.
  struct NewSegment {
    ckpt::SegmentId id = 0;
    uint64_t bytes = 0;  // to preallocate
    uint64_t least = 0;  // minimum on a nearly full disk
    std::optional<Result<Disk::NewFile>> file;
  };
  struct Failure {
    uint64_t least = 0;  // minimum of the segment that could not be made
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
  uint64_t making_bytes_ = 0;        // size of the segment being made
  uint64_t free_before_making_ = 0;  // free space before that
  bool awaited_ = false;             // place() waits for it
  std::optional<Failure> failure_;   // its failure, until place() has returned it
  uint64_t largest_extent_ = 0;
};

}  // namespace ckptd
