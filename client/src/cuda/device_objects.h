// CUDA objects that libckpt_cuda owns: the pinned arena, and the memory of stagings.
#pragma once

#include <ckpt/ckpt.h>

#include <memory>
#include <vector>

#include "client/src/cuda/arena_pinning.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "kernels/cuda/array.h"

namespace ckpt::lib {

// The session's arena, pinned. If a new daemon refuses the old arena, the session gets a new one;
// the old one stays pinned, since copies may be in progress.
class PinnedArena {
 public:
  struct Options {
    int device = 0;
    uint64_t part_bytes = ArenaPinning::kPartBytes;
  };
  explicit PinnedArena(ckpt_session* session) : PinnedArena(session, Options{}) {}
  PinnedArena(ckpt_session* session, const Options& options)
      : session_(session), options_(options) {}
  // Call before each use; takes time only if the arena is a new one.
  Status pin(const ArenaPinning::Progress& progress = {});
  // True if a part of the newest pinned arena begins at `at`: no copy may cross such a boundary
  // between parts.
  bool begins_part(const void* at) const { return pinned_.back().begins_part(at); }
  // Pinning of the newest arena; null before the first pin().
  const ArenaPinning* newest() const { return pinned_.empty() ? nullptr : &pinned_.back(); }

 private:
  ckpt_session* const session_;
  const Options options_;
  std::vector<ArenaPinning> pinned_;
};

// Size of a staging's packs: CRCs of places, and bytes of tables.
struct StagingSize {
  size_t places = 0;
  size_t table_bytes = 0;
};

// Tables of packs, first on the host, and CRCs of places. A staging takes parts one by one and
// returns all parts together, for reuse by other stagings.
class StagingMemory {
 public:
  // Memory of one pack.
  struct Part {
    std::byte* host_tables = nullptr;  // pinned
    std::byte* tables = nullptr;       // copy of the tables on the device
    uint32_t* crc = nullptr;           // pinned; written by the device itself
  };
  static Result<std::unique_ptr<StagingMemory>> make(const StagingSize& size);
  // True if enough is left.
  bool fits(const StagingSize& size) const {
    return size.places <= crc_.size() - used_.places &&
           size.table_bytes <= tables_.size() - used_.table_bytes;
  }
  // Precondition: fits(size); table_bytes is a multiple of 16.
  Part take(const StagingSize& size);
  void release_parts() { used_ = {}; }

 private:
  StagingMemory() = default;
  kernels::DeviceArray<std::byte> tables_;
  kernels::PinnedArray<std::byte> host_tables_;
  kernels::PinnedArray<uint32_t> crc_;
  StagingSize used_;
};

// kInvalidArgument, naming the unit, if the device cannot access the first or the last byte: NULL,
// freed memory, host memory unknown to CUDA, or memory of another device. A kernel that touches
// such memory would end the process's use of the device. The memory may be freed at any time, so
// callers must not cache this check.
//
// True: memory of the device; false: pinned host memory, or managed memory.
Result<bool> check_reachable(int device, UnitId unit, uint64_t offset, const void* data,
                             uint64_t length);

// The session's error after a failed call, as a Status.
Status session_status(const ckpt_session* session, ckpt_status status);

}  // namespace ckpt::lib
