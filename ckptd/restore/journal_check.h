// JournalCheck: reads back the durable part of the journal, batch after batch. Checks checksums,
// places and the hash chain, but not the contents of the records.
//
// Reads one piece at a time, which the executor checks; a batch larger than a piece is read whole.
// Without this check, damage of the journal would be found only at the next startup. By then the
// catalog, which could restore the records, may be lost. Loop thread. The destructor asserts that
// the check is idle.
#pragma once

#include <functional>
#include <string>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/io/journal_source.h"
#include "formats/journal.h"

namespace ckptd {

class JournalCheck {
 public:
  struct Outcome {
    uint64_t bytes = 0;   // requested from the disk
    std::string error;    // the first error, with its offset and what to do; empty: none
    bool damage = false;  // false: not damaged, but the system refused to read
  };
  // Like ExtentReader's: called before each piece; after a no, resume() asks again.
  using MayRead = std::function<bool(uint64_t bytes)>;

  JournalCheck(Disk& disk, Executor& executor, JournalSource journal, MayRead may_read = {});
  ~JournalCheck();
  JournalCheck(const JournalCheck&) = delete;
  JournalCheck& operator=(const JournalCheck&) = delete;

  // Checks what is durable now. on_done runs from the loop, never within this call; it may start
  // the next check, or destroy this object.
  void start(std::function<void(Outcome)> on_done);
  void resume();
  // on_done does not run after this. on_stopped runs from the loop, never within this call.
  void stop(std::function<void()> on_stopped);
  bool busy() const { return on_done_ != nullptr || waiting_; }

 private:
  void read_piece();
  void check_piece(const Result<uint64_t>& got);
  void piece_checked();
  void finish(const std::string& damage);
  void finish_unchecked(const ckpt::Error& why);
  void finish_with_outcome();
  // Runs `work` on the executor, then `then` from the loop. No other work runs meanwhile.
  void on_executor(std::function<void()> work, std::function<void()> then);
  bool end_wait();

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
  Result<uint64_t> next_batch_ = 0;  // size of the next batch, from the last piece
  bool waiting_ = false;             // for the disk or the executor
};

}  // namespace ckptd
