// SegmentReader: segment files, open for reading.
//
// A file's header (store, number) is checked once when it is opened. One that is of another store
// or number is refused. One that is damaged is only remembered: every extent says for itself which
// store, segment and place it is of, and is checked against that. A bounded number of files is
// kept open; the one unused for longest is closed first, never one that somebody holds. Loop
// thread. The destructor asserts that no header read is in flight: close restores and verifies
// first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckptd/io/disk.h"
#include "formats/base/hash.h"
#include "formats/journal.h"
#include "formats/segment.h"
#include "formats/unit.h"

namespace ckptd {

// Keeps the file open while it is held.
using SegmentHandle = std::shared_ptr<const FileId>;

class SegmentReader {
 public:
  SegmentReader(Disk& disk, const ckpt::base::Hash128& store);
  ~SegmentReader();

  // Runs `then` with the open, checked file: within this call if that is known at once, else from
  // Disk::reap(). Errors name the segment: kNotFound, kCorrupt (header of another store or number).
  void open(ckpt::SegmentId segment, std::function<void(Result<SegmentHandle>)> then);
  // What is wrong with the header of a segment that was opened; empty: nothing.
  std::string header_damage(ckpt::SegmentId segment) const;

  // Closes the file, should it be open, before it is removed. False: somebody reads it.
  bool close(ckpt::SegmentId segment);

  // The bytes of one extent header, whole (blocking, for start-up).
  Result<std::vector<std::byte>> read_header(ckpt::SegmentId segment, uint64_t offset,
                                             uint32_t header_bytes);
  const ckpt::base::Hash128& store() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What the journal says about the extents of a commit, in their order: the headers as they must be
// on disk, except `sequence`, which only the header has. Fragments ascending in the payload.
std::vector<ckpt::ExtentHeader> expected_headers(const ckpt::base::Hash128& store,
                                                 const ckpt::fb::CommittedT& commit);

// What the journal still knows of an extent: all of it; or, of a commit that is deleted, those
// fragments that views of others need, and of an extent that another commit wrote, those that have
// the bytes of this one, too.
enum class ExtentPart : uint8_t { kWhole, kRest };

// Are these bytes of a whole extent header the ones that the journal means? Compares the decoded
// header with `expected` and the CRC with the recorded one. The error (kCorrupt) says what differs.
// kRest: the header's table has the expected fragments among others.
Status check_extent_header(ckpt::ByteView bytes, const ckpt::ExtentHeader& expected,
                           uint32_t header_crc32c, ExtentPart part = ExtentPart::kWhole);

// Recovery: do all extent headers of a commit hold? Blocking, for start-up. The error of one that
// does not (kCorrupt, or kNotFound: its segment is gone) is the reason to write into CommitDamaged:
// "unit X: segment 3 offset 4096: ...". Any other error says that it could not be read this time.
// `units` of the run.
Status check_commit_headers(SegmentReader& segments, const ckpt::fb::CommittedT& commit,
                            const std::vector<ckpt::UnitSpec>& units,
                            ExtentPart part = ExtentPart::kWhole);

}  // namespace ckptd
