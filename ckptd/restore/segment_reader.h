// SegmentReader: segment files, open for reading.
//
// A file's header (store, number) is checked once when the file is opened. A file of another
// store or number is refused. A damaged header is only recorded: every extent header names its
// own store, segment and place, and is checked against them. The number of open files is bounded.
// The least recently used file is closed first, but never a file that a handle holds. Loop
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

  // Runs `then` with the open, checked file: within this call if known at once, else from
  // Disk::reap(). Errors name the segment: kNotFound, kCorrupt (header of another store or number).
  void open(ckpt::SegmentId segment, std::function<void(Result<SegmentHandle>)> then);
  // Damage of the header of an open segment file; empty: none.
  std::string header_damage(ckpt::SegmentId segment) const;

  // Closes the file before its removal, if it is open. False: a reader holds it.
  bool close(ckpt::SegmentId segment);

  // The bytes of one extent header, whole (blocking, for startup).
  Result<std::vector<std::byte>> read_header(ckpt::SegmentId segment, uint64_t offset,
                                             uint32_t header_bytes);
  const ckpt::base::Hash128& store() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The extent headers of a commit that the journal implies, in their order, except `sequence`, which
// only the header has. Fragments ascending in the payload.
std::vector<ckpt::ExtentHeader> expected_headers(const ckpt::base::Hash128& store,
                                                 const ckpt::fb::CommittedT& commit);

// The part of an extent that the journal still describes. kWhole: all of it. kRest: of a deleted
// commit, the fragments that views of other commits need; of a shared extent, the fragments that
// this commit references.
enum class ExtentPart : uint8_t { kWhole, kRest };

// Checks the bytes of a whole extent header against the journal: compares the decoded header with
// `expected` and the CRC with the recorded one. The error (kCorrupt) says what differs. kRest: the
// header's table has the expected fragments among others.
Status check_extent_header(ckpt::ByteView bytes, const ckpt::ExtentHeader& expected,
                           uint32_t header_crc32c, ExtentPart part = ExtentPart::kWhole);

// Recovery: checks all extent headers of a commit. Blocking, for startup. The error of a bad header
// (kCorrupt, or kNotFound: its segment is gone) is the reason to write into CommitDamaged: "unit X:
// segment 3 offset 4096: ...". Any other error means that the header could not be read this time.
// `units`: of the run.
Status check_commit_headers(SegmentReader& segments, const ckpt::fb::CommittedT& commit,
                            const std::vector<ckpt::UnitSpec>& units,
                            ExtentPart part = ExtentPart::kWhole);

}  // namespace ckptd
