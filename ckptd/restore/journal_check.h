// JournalCheck: the whole journal back from the disk, as far as it is durable, batch after batch:
// checksums, places and the chain, but not what the records say.
//
// One piece at a time, which is checked on the executor; a batch that is larger than one is read
// whole. Nobody else reads the journal before the next start, when it is too late to find out that
// it is damaged: the catalog, which knows the same, may be gone by then. Loop thread. The
// destructor asserts that it is idle.
#pragma once

#include <functional>
#include <string>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "formats/journal.h"

namespace ckptd {

// The journal of a store that is open.
struct JournalSource {
  FileId file = 0;
  std::function<uint64_t()> durable_end;  // up to here nothing is written any more
};

class JournalCheck {
 public:
  struct Outcome {
    uint64_t bytes = 0;   // that were asked of the disk
    std::string error;    // the first there is, with its offset and what to do; empty: none
    bool damage = false;  // false: it is no damage, the system refused to read
  };
  // As of ExtentReader: is asked before each piece; after a no, go_on() asks again.
  using MayRead = std::function<bool(uint64_t bytes)>;

  JournalCheck(Disk& disk, Executor& executor, JournalSource journal, MayRead may_read = {});
  ~JournalCheck();
  JournalCheck(const JournalCheck&) = delete;
  JournalCheck& operator=(const JournalCheck&) = delete;

  // What is durable by now. on_done runs from the loop, never within this call; it may start the
  // next one, or destroy this.
  void start(std::function<void(Outcome)> on_done);
  void go_on();
  // on_done does not run any more. on_stopped runs from the loop, never within this call.
  void stop(std::function<void()> on_stopped);
  bool busy() const { return on_done_ != nullptr || waiting_; }

 private:
  void read_piece();
  void check_piece(const Result<uint64_t>& got);
  void piece_checked();
  void finish(const std::string& damage);
  void finish_unchecked(const ckpt::Error& why);
  void finish_with_outcome();
  // Work on the executor, then something of this; nothing else runs meanwhile.
  void on_executor(std::function<void()> work, std::function<void()> then);
  bool came_back();

  Disk& disk_;
  Executor& executor_;
  const JournalSource journal_;
  const MayRead may_read_;
  std::function<void(Outcome)> on_done_;
  std::function<void()> on_stopped_;
  Outcome outcome_;
  uint64_t end_ = 0;
  ckpt::JournalEncoder::Position at_;
  AlignedBuffer buffer_;
  uint64_t piece_bytes_ = 0;
  Result<uint64_t> next_batch_ = 0;  // its size, as the last piece said
  bool waiting_ = false;             // for the disk or the executor
};

}  // namespace ckptd
