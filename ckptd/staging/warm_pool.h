// WarmPool: pre-faulted memory for later arenas. The first touch of fresh memory is many times
// slower than a copy into warm memory; without a pool, a session's first snapshot pays for it.
// Pieces have one size and are made one after the other. The kernel zeroes each piece, and no
// client sees it before it is taken. Private to staging.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckptd/limits.h"
#include "ckptd/staging/staging.h"
#include "formats/arena.h"

namespace ckptd {

class WarmPool {
 public:
  struct Memory {
    ckpt::base::UniqueFd fd;
    ckpt::ArenaMapping guard;
    ckpt::ArenaMapping view;
    uint64_t warm_bytes = 0;  // faulted in, from its first byte on
  };

  // `bytes`: size limit of all pieces; 0: no pool.
  WarmPool(uint64_t bytes, uint64_t piece_bytes);

  uint64_t piece_bytes() const { return piece_bytes_; }
  uint64_t bytes() const { return pieces_.size() * piece_bytes_; }  // of all its pieces
  uint64_t warm_bytes() const;
  bool full() const {
    return piece_bytes_ == 0 || bytes() + piece_bytes_ > bytes_max_ ||
           pieces_.size() >= limits::kWarmPoolPiecesMax;
  }

  // Adds a piece that is not faulted in. kResourceExhausted: the system has no memory.
  Status add();
  // The next range to fault in, in ascending order; nullopt: nothing is left, or a range is being
  // faulted in. Until faulted() reports the result, the range's piece is neither taken nor
  // dropped.
  struct Faulting {
    MutableByteView guard;
    MutableByteView view;
  };
  std::optional<Faulting> next_fault();
  void faulted(bool good);  // false: drops that piece
  bool faulting() const { return faulting_; }

  // Warm bytes that an arena of this layout would have. 0: there is no piece, or the arena is so
  // much smaller than a piece that freeing the rest would block the loop too long.
  uint64_t warm_bytes_for(const ckpt::ArenaLayout& layout) const;
  // Memory for this layout. Precondition: warm_bytes_for() is not 0. Fails with the system's error.
  Result<Memory> take(const ckpt::ArenaLayout& layout);
  // Removes pieces beyond this many bytes, unless they are being faulted in. Freeing them takes a
  // tenth of a second per GiB, with small pages.
  std::vector<Memory> shrink(uint64_t bytes_left);

 private:
  bool warm(const Memory& piece) const { return piece.warm_bytes == piece_bytes_; }

  const uint64_t bytes_max_;
  const uint64_t piece_bytes_;
  std::vector<Memory> pieces_;  // all warm, except perhaps the last
  bool faulting_ = false;       // the last piece
};

}  // namespace ckptd
