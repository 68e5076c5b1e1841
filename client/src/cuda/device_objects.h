// What libckpt_cuda holds of CUDA, owned: the arena, pinned, and what one staging needs.
#pragma once

#include <ckpt/ckpt.h>

#include <memory>
#include <vector>

#include "client/src/cuda/arena_pinning.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "kernels/cuda/array.h"

namespace ckpt::lib {

// The session's arena, pinned. After a daemon that did not take the old one back it is another one;
// the old one stays pinned, since copies may be under way.
class PinnedArena {
 public:
  struct Options {
    int device = 0;
    uint64_t part_bytes = ArenaPinning::kPartBytes;
  };
  explicit PinnedArena(ckpt_session* session) : PinnedArena(session, Options{}) {}
  PinnedArena(ckpt_session* session, const Options& options)
      : session_(session), options_(options) {}
  // Before each use; costs something only when the arena is a new one.
  Status pin(const ArenaPinning::Progress& progress = {});
  // Whether a part of the arena that was pinned last begins at `at`: no copy may reach over it
  // then.
  bool begins_part(const void* at) const { return pinned_.back().begins_part(at); }
  // How the arena that was pinned last is pinned; null before the first pin().
  const ArenaPinning* newest() const { return pinned_.empty() ? nullptr : &pinned_.back(); }

 private:
  ckpt_session* const session_;
  const Options options_;
  std::vector<ArenaPinning> pinned_;
};

// What the packs of a staging take beside their slots.
struct StagingSize {
  size_t places = 0;
  size_t table_bytes = 0;
};

// Tables of packs, first on the host, and CRCs of places. A staging takes it part by part, and
// gives all of it back together, for others.
class StagingMemory {
 public:
  // What one pack takes.
  struct Part {
    std::byte* host_tables = nullptr;  // pinned
    std::byte* tables = nullptr;       // where they are brought to
    uint32_t* crc = nullptr;           // pinned; written by the device itself
  };
  static Result<std::unique_ptr<StagingMemory>> make(const StagingSize& size);
  // Whether there is as much left.
  bool fits(const StagingSize& size) const {
    return size.places <= crc_.size() - used_.places &&
           size.table_bytes <= tables_.size() - used_.table_bytes;
  }
  // What fits; table_bytes is a multiple of 16.
  Part take(const StagingSize& size);
  void give_back() { used_ = {}; }

 private:
  StagingMemory() = default;
  kernels::DeviceArray<std::byte> tables_;
  kernels::PinnedArray<std::byte> host_tables_;
  kernels::PinnedArray<uint32_t> crc_;
  StagingSize used_;
};

// kInvalidArgument, naming the unit, if the device cannot reach the first byte that lies there, or
// the last one: NULL, memory that was freed, memory of the host that CUDA does not know, or another
// device's. A kernel that touches it would end the process's use of the device. What has passed may
// be freed at any time, so nobody may remember that it has.
//
// True if it is memory of the device; false if it is pinned memory of the host, or managed.
Result<bool> check_reachable(int device, UnitId unit, uint64_t offset, const void* data,
                             uint64_t length);

// What the session says of a call that has failed, as a Status.
Status session_status(const ckpt_session* session, ckpt_status status);

}  // namespace ckpt::lib
