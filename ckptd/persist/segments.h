// Segments: the files that extents are appended to, created ahead of need.
//
// A segment is one preallocated file. Its name is durable before open() returns (directory synced);
// its header block is written like any payload and is durable with the first sync of the segment,
// which every commit that touches it waits for. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ckptd/io/aligned_buffer.h"
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
  };
  // on_header: a header was written, or the segment failed.
  Segments(Disk& disk, const Options& options, std::function<void(Segment&)> on_header);

  // A place for an extent of `bytes`, opening the next segment if the current one is full. An
  // extent larger than a segment gets one of its own size.
  struct Place {
    Segment* segment = nullptr;
    uint64_t offset = 0;
  };
  Result<Place> place(uint64_t bytes);
  // Opens the first or the next segment ahead of need. A failure is not an error yet: place() tries
  // again and reports it.
  void prepare_ahead();

  Segment& at(ckpt::SegmentId segment);
  // Nothing more is placed in it.
  void seal_off(Segment& segment, const ckpt::Error& error);
  // Closes the file once nobody needs it any more.
  void close_if_done(ckpt::SegmentId segment);
  std::vector<Segment*> all();
  // Preallocated and not yet placed: space on disk that is already ours.
  uint64_t unplaced_bytes() const;
  // Gives back what was preallocated and never used. Nothing is in flight.
  void close();

 private:
  Result<Segment*> open(uint64_t bytes);
  Result<FileId> create_file(const std::string& path, uint64_t* bytes, uint64_t least);
  void write_header(Segment& segment);

  Disk& disk_;
  const Options options_;
  const std::function<void(Segment&)> on_header_;
  std::map<ckpt::SegmentId, std::unique_ptr<Segment>> segments_;  // open ones
  ckpt::SegmentId next_;
  Segment* current_ = nullptr;
  Segment* spare_ = nullptr;
  bool directory_made_ = false;
};

}  // namespace ckptd
