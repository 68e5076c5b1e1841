// ExtentReader: one whole extent back from the disk, in pieces, through ExtentCheck.
//
// A few pieces are read ahead of the checksums, which are taken on the executor; memory is bounded
// whatever the extent's size. Verify and scrub read extents one after the other with it. Loop
// thread. The destructor asserts that it is idle.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/restore/context.h"
#include "ckptd/restore/extent_check.h"

namespace ckptd {

struct ExtentPosition {
  ckpt::SegmentId segment = 0;
  uint64_t offset = 0;  // of the extent header
};

class ExtentReader {
 public:
  struct Outcome {
    uint64_t bytes = 0;       // that were asked of the disk
    std::string file_damage;  // what is wrong with the header of the segment's file; empty: nothing
    std::vector<ExtentCheck::Finding> findings;
  };
  // Is asked before each piece: may so many bytes be read now? After a no, go_on() asks again.
  using MayRead = std::function<bool(uint64_t bytes)>;

  // Without `may_read` it reads as fast as it can.
  explicit ExtentReader(const RestoreContext& context, MayRead may_read = {});
  ~ExtentReader();
  ExtentReader(const ExtentReader&) = delete;
  ExtentReader& operator=(const ExtentReader&) = delete;

  // on_done runs from the loop, never within this call; it may start the next one.
  void start(ExtentPosition position, ExtentCheck check, std::function<void(Outcome)> on_done);
  void go_on();
  // Drops the extent at hand: its on_done does not run any more. on_stopped runs from the loop,
  // never within this call; then it is idle, and may be started again or destroyed.
  void stop(std::function<void()> on_stopped);
  bool busy() const { return check_.has_value() || waiting_ > 0; }

 private:
  // A stretch of the extent on its way from the disk, in the order of the extent.
  struct Piece {
    AlignedBuffer buffer;
    MutableByteView memory;  // of the buffer
    bool here = false;
    Result<uint64_t> got = 0;
  };
  void opened(const Result<SegmentHandle>& handle);
  AlignedBuffer take_buffer(uint64_t bytes);
  void read_more();
  void feed_more();
  void piece_fed();
  void finish();
  void finish_stop();
  void release();
  // Counts a callback that has not come back, and runs it from the loop.
  void on_executor(std::function<void()> work, void (ExtentReader::*then)());

  const RestoreContext context_;
  const MayRead may_read_;
  std::function<void(Outcome)> on_done_;
  std::function<void()> on_stopped_;
  ExtentPosition position_;
  std::optional<ExtentCheck> check_;  // of the extent at hand
  Outcome outcome_;
  SegmentHandle file_;
  std::list<Piece> pieces_;  // read, not yet fed; stable addresses
  std::vector<AlignedBuffer> spare_;
  uint64_t submitted_ = 0;  // bytes of the extent
  bool feeding_ = false;
  size_t waiting_ = 0;  // callbacks that have not come back
};

}  // namespace ckptd
