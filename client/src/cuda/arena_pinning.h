// ArenaPinning: the memory of one arena, pinned for the GPU's copy engines.
//
// CUDA pins page by page: a large arena takes seconds. So the arena is pinned in parts: progress
// can be reported, and an error names the part. CUDA refuses a copy across two registrations, so
// parts end where slabs end, and no copy may cross the end of a part.
//
// Before the first part is pinned, untouched pages are bound to the GPU's NUMA node. Pinning gives
// small pages to memory that ckptd has not warmed; memory of its pool keeps its huge pages.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace ckpt::lib {

class ArenaPinning {
 public:
  static constexpr uint64_t kPartBytes = 4ull << 30;

  struct Options {
    int device = 0;                    // whose NUMA node is preferred
    uint64_t slab_bytes = 0;           // parts end where slabs do; 0: anywhere
    uint64_t part_bytes = kPartBytes;  // largest part; a part has at least one slab
  };
  struct Stats {
    uint64_t bytes = 0;    // pinned
    uint64_t ns = 0;       // time of pinning
    int numa_node = -1;    // of the device; -1: unknown, or the machine has one node
    bool is_near = false;  // new pages come from numa_node
  };
  // Called before the first part and after each part, with the bytes pinned so far and in total.
  using Progress = std::function<void(uint64_t pinned, uint64_t total)>;

  // kResourceExhausted or kUnavailable, with the part and the bytes pinned before it. After an
  // error all parts are unpinned.
  static Result<ArenaPinning> pin(MutableByteView arena, const Options& options,
                                  const Progress& progress);
  ArenaPinning(ArenaPinning&&) noexcept = default;
  ArenaPinning& operator=(ArenaPinning&&) noexcept = default;

  const std::byte* data() const { return arena_.data(); }
  const Stats& stats() const { return stats_; }
  // True if a part begins at `at`: no copy may cross this address.
  bool begins_part(const void* at) const;

 private:
  // One registration, ended with this object.
  class Part {
   public:
    static Result<Part> pin(MutableByteView bytes);
    Part(Part&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part();

   private:
    Part() = default;
    MutableByteView bytes_;
  };

  explicit ArenaPinning(MutableByteView arena) : arena_(arena) {}
  void choose_node(int device);
  Status pin_parts(const Progress& progress);

  MutableByteView arena_;
  uint64_t part_bytes_ = 0;
  std::vector<Part> parts_;
  Stats stats_;
};

}  // namespace ckpt::lib
