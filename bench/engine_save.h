// save --engine-only: slabs that are already filled and sealed, through staging and persist alone.
// No sockets, no client, no copy: what the storage engine itself costs over the raw loop.
#pragma once

#include <string>

#include "formats/base/result.h"

namespace bench {

struct SaveShape {
  uint64_t bytes = 2ull << 30;
  uint32_t sessions = 4;
  uint64_t slab_bytes = 64ull << 20;
  uint64_t fragment_bytes = 16ull << 20;
  std::string engine = "uring";
};

class EngineSave {
 public:
  // Makes a store in a new directory below `directory` and fills arenas for the whole snapshot.
  static ckpt::Result<std::unique_ptr<EngineSave>> open(const std::string& directory,
                                                        const SaveShape& shape);
  virtual ~EngineSave() = default;
  // Seals everything, writes and commits it, and removes the segments: bytes per second from the
  // first write to the durable journal record.
  virtual ckpt::Result<double> run() = 0;
};

}  // namespace bench
