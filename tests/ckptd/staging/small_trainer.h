// SmallTrainer: the client's side of an arena, for tests. Maps the memfd as a trainer does and
// fills slabs with fragments.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ckptd/staging/staging.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {

class SmallTrainer {
 public:
  explicit SmallTrainer(const Staging::Granted& granted)
      : arena(granted.arena),
        fd(granted.fd),
        layout(granted.layout),
        mapping_(ckpt::ArenaMapping::map(granted.fd, granted.layout).value()) {}

  struct Filled {
    uint32_t slab = 0;
    uint64_t payload_bytes = 0;
    std::vector<ckpt::ExtentFragment> fragments;
  };
  struct Piece {
    ckpt::UnitId unit = 0;
    uint64_t length = 0;
  };
  // Fills the slab with seeded bytes as libckpt would: large fragments at block boundaries.
  Filled fill(uint32_t slab, const std::vector<Piece>& pieces, uint64_t seed) {
    const MutableByteView bytes = mapping_.slab(slab);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    Filled filled{.slab = slab};
    std::mt19937_64 random(seed);
    uint64_t at = 0;
    for (const Piece& piece : pieces) {
      if (piece.length >= ckpt::kAlignedFragmentBytes) {
        at = ckpt::base::align_up(at, ckpt::kBlockBytes);
      }
      const MutableByteView fragment = bytes.subspan(at, piece.length);
      for (std::byte& byte : fragment) byte = static_cast<std::byte>(random());
      filled.fragments.push_back({.unit = piece.unit,
                                  .length = piece.length,
                                  .payload_offset = at,
                                  .crc32c = ckpt::base::crc32c(fragment)});
      at += piece.length;
    }
    filled.payload_bytes = at;
    return filled;
  }
  MutableByteView slab(uint32_t index) { return mapping_.slab(index); }

  const ArenaId arena;
  const int fd;
  const ckpt::ArenaLayout layout;

 private:
  ckpt::ArenaMapping mapping_;
};

// Runs what is outstanding until `done`, or nothing is left to do.
template <typename Done>
void run_until(Disk& disk, Executor& executor, Done done) {
  while (!done() && disk.in_flight() + executor.outstanding() > 0) {
    if (disk.in_flight() > 0) {
      disk.wait();
      disk.reap();
    }
    if (executor.outstanding() > 0) {
      executor.wait();
      executor.reap();
    }
  }
}
inline void run_all(Disk& disk, Executor& executor) {
  run_until(disk, executor, [] { return false; });
}

}  // namespace ckptd
