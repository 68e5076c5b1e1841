// DirectReader: threads that read a window's blocks with cuFile, which has no call that returns
// before its bytes are there and works with every version. They live as long as one restore, so
// that the library has no threads at any other time.
//
// Used from one thread. Its end waits for reads that are under way, without a bound: what they
// write to must stay until then. is_idle() tells before.
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
  // What became of a window's reads.
  struct Job {
    std::shared_ptr<CuFile::File> file;
    std::byte* base = nullptr;
    std::vector<DirectRead> reads;
    std::vector<uint64_t> got;          // bytes of each
    std::optional<Error> read_error;    // the first of the disk's
    std::optional<Error> cufile_error;  // the first of cuFile's own
    size_t left = 0;                    // reads that have not ended
  };

  explicit DirectReader(int device) : device_(device) {}
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  std::shared_ptr<Job> start(std::shared_ptr<CuFile::File> file, std::byte* base,
                             const std::vector<DirectRead>& reads);
  // Its results may be looked at.
  bool finished(const Job& job);
  // Reads that have ended, of all jobs: grows as long as there is progress.
  uint64_t reads_done();
  // No read is under way; those that had not begun will not.
  bool stop_and_look_if_idle();

 private:
  void serve();
  void give_up(Job& job, Error why);
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
