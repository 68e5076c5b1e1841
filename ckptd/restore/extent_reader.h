// ExtentReader: reads one whole extent from disk, in pieces, through ExtentCheck.
//
// Reads a few pieces ahead of the checksums, which run on the executor. Memory is bounded, whatever
// the extent's size. Verify and scrub use it for one extent after the other. Loop thread. The
// destructor asserts that the reader is idle.
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
    uint64_t bytes = 0;       // requested from the disk
    std::string file_damage;  // damage of the segment file's header; empty: none
    std::vector<ExtentCheck::Finding> findings;
  };
  // Called before each piece: may this many bytes be read now? After a no, resume() asks again.
  using MayRead = std::function<bool(uint64_t bytes)>;

  // Without `may_read` the reader has no rate limit.
  explicit ExtentReader(const RestoreContext& context, MayRead may_read = {});
  ~ExtentReader();
  ExtentReader(const ExtentReader&) = delete;
  ExtentReader& operator=(const ExtentReader&) = delete;

  // on_done runs from the loop, never within this call; it may start the next extent.
  void start(ExtentPosition position, ExtentCheck check, std::function<void(Outcome)> on_done);
  void resume();
  // Drops the current extent: its on_done does not run. on_stopped runs from the loop,
  // never within this call; the reader is then idle, and may be started again or destroyed.
  void stop(std::function<void()> on_stopped);
  bool busy() const { return check_.has_value() || waiting_ > 0; }

 private:
  // A stretch of the extent that is being read from disk, in the order of the extent.
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
  // Runs `work` on the executor, then `then` from the loop; counts the pending callback.
  void on_executor(std::function<void()> work, void (ExtentReader::*then)());

  const RestoreContext context_;
  const MayRead may_read_;
  std::function<void(Outcome)> on_done_;
  std::function<void()> on_stopped_;
  ExtentPosition position_;
  std::optional<ExtentCheck> check_;  // of the current extent
  Outcome outcome_;
  SegmentHandle file_;
  std::list<Piece> pieces_;  // submitted or read, not yet fed; stable addresses
  std::vector<AlignedBuffer> spare_;
  uint64_t submitted_ = 0;  // bytes of the extent
  bool feeding_ = false;
  size_t waiting_ = 0;  // pending callbacks
};

}  // namespace ckptd
