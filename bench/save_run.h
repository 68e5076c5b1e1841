// The two ways `save` is run. Both return bytes per second of one whole snapshot.
#pragma once

#include <memory>
#include <string>

#include "bench/usage.h"
#include "formats/base/result.h"

namespace bench {

// What a store may hold before it is thrown away: nothing is ever deleted by one, and the disk is
// not ours alone.
inline constexpr uint64_t kStoreBytesMax = 8ull << 30;

struct SaveShape {
  uint64_t bytes = 2ull << 30;
  uint32_t sessions = 4;
  uint64_t slab_bytes = 64ull << 20;
  uint64_t fragment_bytes = 16ull << 20;
  std::string engine = "uring";
};

class SaveRun {
 public:
  virtual ~SaveRun() = default;
  // What it wrote has become too much (or nothing is there yet): renew() starts with an empty store
  // and lets the disk settle. Neither is timed.
  virtual bool full() const = 0;
  virtual ckpt::Status renew() = 0;
  virtual ckpt::Result<double> run() = 0;
  // What the process that writes has used since it began: ckptd, or this one.
  virtual ckpt::Result<Usage> usage() const = 0;
};

// Through libckpt and a ckptd of its own: from the first rank's begin until the last rank knows
// that the snapshot is durable. Copy, checksums, sockets, commit and catalog included.
ckpt::Result<std::unique_ptr<SaveRun>> open_daemon_save(const std::string& directory,
                                                        const SaveShape& shape);

// Slabs that are filled and sealed already, through staging and persist alone: what the storage
// engine itself costs over the raw loop. From the first write to the durable journal record.
ckpt::Result<std::unique_ptr<SaveRun>> open_engine_save(const std::string& directory,
                                                        const SaveShape& shape);

}  // namespace bench
