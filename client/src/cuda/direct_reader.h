// DirectReader: threads that read a window's blocks with cuFile. The only cuFile read that works in
// every version blocks until the bytes are there. The threads live as long as one restore, so the
// library has no threads at any other time.
//
// Used from one thread. The destructor waits for reads in progress, without a timeout: their target
// memory must stay until then. cancel_and_check_idle() tells beforehand whether it would wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "client/src/cuda/cufile.h"
#include "client/src/cuda/direct_plan.h"

namespace ckpt::lib {

class DirectReader {
 public:
  // The reads of one window, and their results.
  struct Job {
    std::shared_ptr<CuFile::File> file;
    std::byte* base = nullptr;
    std::vector<DirectRead> reads;
    std::vector<uint64_t> got;          // bytes of each
    std::optional<Error> read_error;    // the first error of the disk
    std::optional<Error> cufile_error;  // the first error of cuFile itself
    size_t left = 0;                    // reads that have not ended
  };

  explicit DirectReader(int device) : device_(device) {}
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  std::shared_ptr<Job> start(std::shared_ptr<CuFile::File> file, std::byte* base,
                             const std::vector<DirectRead>& reads);
  // True if the job's results may be read.
  bool finished(const Job& job);
  // Number of ended reads, of all jobs: grows while there is progress.
  uint64_t reads_done();
  // Cancels reads that have not begun. True if no read is in progress.
  bool cancel_and_check_idle();

 private:
  void serve();
  void fail_job(Job& job, Error why);
  void take(Job& job, size_t index, const Result<uint64_t>& bytes);

  const int device_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::pair<std::shared_ptr<Job>, size_t>> queue_;
  uint64_t done_ = 0;
  size_t busy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ckpt::lib
