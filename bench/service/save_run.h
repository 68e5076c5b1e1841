// The two ways to run `save`. Both return bytes per second of one whole snapshot.
#pragma once

#include <memory>
#include <string>

#include "bench/common/usage.h"
#include "formats/base/result.h"

namespace bench {

// Largest store before it is replaced by an empty one. Saves delete nothing, and other users share
// the disk.
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
  // True if the store has reached kStoreBytesMax or does not exist yet. Then renew() starts with an
  // empty store and lets the disk settle. Neither is timed.
  virtual bool full() const = 0;
  virtual ckpt::Status renew() = 0;
  virtual ckpt::Result<double> run() = 0;
  // Usage of the process that writes, since its start: ckptd, or this process.
  virtual ckpt::Result<Usage> usage() const = 0;
};

// Saves through libckpt and a ckptd of its own: from the first rank's begin until the last rank
// knows that the snapshot is durable. Includes copy, checksums, sockets, commit and catalog.
ckpt::Result<std::unique_ptr<SaveRun>> open_daemon_save(const std::string& directory,
                                                        const SaveShape& shape);

// Saves slabs that are already filled and sealed, through staging and persist only: the cost of the
// storage engine over the raw loop. From the first write to the durable journal record.
ckpt::Result<std::unique_ptr<SaveRun>> open_engine_save(const std::string& directory,
                                                        const SaveShape& shape);

}  // namespace bench
