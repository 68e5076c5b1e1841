// The limit of the disk: the fastest way we know to get bytes onto it, or back, with nothing else
// in the way. One preallocated file, O_DIRECT, io_uring with registered buffers of incompressible
// bytes, one fdatasync at the end; the best of a sweep over depth and request size. And fio's own
// loop with the same settings, where fio is installed: the limit is the faster of the two.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "formats/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace bench {

using ckpt::Result;

// Memory that the limit writes from and reads into: large enough that no cache helps, and with huge
// pages, as an arena. fio's loop has small pages: one disk writes a tenth faster from those, others
// half as fast, and the limit is the better of the two.
Result<ckpt::ArenaMapping> make_raw_pool();

struct RawConfig {
  unsigned depth = 16;
  uint64_t request_bytes = 4ull << 20;
  bool fio = false;
  std::string name() const;  // "io_uring loop, depth 16, 4 MiB"
};

// Files for the limit to write, a new one each time. They stay until clear(): the blocks of a file
// that is removed are discarded when the journal commits, which would be in the middle of what is
// written next, and nobody throws a snapshot away before the next one either.
class LimitFiles {
 public:
  explicit LimitFiles(std::string directory) : directory_(std::move(directory)) {}
  std::string next() { return fmt::format("{}/limit-{}", directory_, made_++); }
  uint64_t there() const { return made_ - removed_; }
  void clear();  // until the disk has settled

 private:
  std::string directory_;
  uint64_t made_ = 0;
  uint64_t removed_ = 0;
};

// Writes `bytes` to a new file and returns bytes per second from the first submission to the end of
// the sync. `pool` is page-aligned memory to write from; its length is a multiple of request_bytes.
// The making of the file is not timed: a snapshot goes into a segment that has just been made,
// too, and a thin disk takes blocks it has never seen half as fast as those it knows.
Result<double> raw_write(const std::string& path, uint64_t bytes, const RawConfig& config,
                         ckpt::MutableByteView pool);

// The same, but overwrites existing blocks: the difference is the cost of allocating blocks.
Result<double> raw_rewrite(const std::string& path, uint64_t bytes, const RawConfig& config,
                           ckpt::MutableByteView pool);

// Reads what raw_write or raw_rewrite left there, into the pool, from the first submission to the
// last completion.
Result<double> raw_read(const std::string& path, uint64_t bytes, const RawConfig& config,
                        ckpt::MutableByteView pool);

bool fio_installed();

// The configuration that `run` was fastest with (best of two each).
Result<RawConfig> sweep(const std::function<Result<double>(const RawConfig&)>& run,
                        const std::function<void(const std::string&)>& progress);

}  // namespace bench
