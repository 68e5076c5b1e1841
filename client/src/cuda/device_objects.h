// What libckpt_cuda holds of CUDA, owned: the arena, pinned, and what one staging needs.
#pragma once

#include <ckpt/ckpt.h>

#include <memory>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "kernels/cuda/array.h"

namespace ckpt::lib {

// Host memory that was there before, pinned as long as this lives.
class PinnedRange {
 public:
  static Result<PinnedRange> pin(MutableByteView bytes);
  PinnedRange(PinnedRange&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  PinnedRange& operator=(PinnedRange&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedRange();
  const std::byte* data() const { return bytes_.data(); }

 private:
  PinnedRange() = default;
  MutableByteView bytes_;
};

// The session's arena. After a daemon that did not take the old one back it is another one; the old
// one stays pinned, since copies may be under way.
class PinnedArena {
 public:
  explicit PinnedArena(ckpt_session* session) : session_(session) {}
  // Before each use; costs something only when the arena is a new one.
  Status pin();

 private:
  ckpt_session* const session_;
  std::vector<PinnedRange> pinned_;
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
  // Of one pack.
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
