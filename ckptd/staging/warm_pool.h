// WarmPool: memory for arenas to come, faulted in before anybody asks. The first touch of fresh
// memory is many times slower than a copy into warm memory, and without a pool a session's first
// snapshot pays for it. Pieces are of one size, made one after the other, each zeroed by the kernel
// and never shown to a client before it is given out. Private to staging.
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

  // As many pieces as `bytes` has room for; 0: there is no pool.
  WarmPool(uint64_t bytes, uint64_t piece_bytes);

  uint64_t piece_bytes() const { return piece_bytes_; }
  uint64_t bytes() const { return pieces_.size() * piece_bytes_; }  // of all its pieces
  uint64_t warm_bytes() const;
  bool full() const {
    return piece_bytes_ == 0 || bytes() + piece_bytes_ > bytes_max_ ||
           pieces_.size() >= limits::kWarmPoolPiecesMax;
  }

  // One more, not faulted in. kResourceExhausted: the system gives none.
  Status add();
  // What is to be faulted in next, in ascending order; nullopt: all of it is, or some of it is
  // being faulted in. Until faulted() says how that went, its piece is neither given out nor
  // dropped.
  struct Faulting {
    MutableByteView guard;
    MutableByteView view;
  };
  std::optional<Faulting> next_fault();
  void faulted(bool good);  // bad: that piece goes
  bool faulting() const { return faulting_; }

  // How much of an arena of that layout would be warm. 0: there is nothing, or the arena is so much
  // smaller than a piece that giving back the rest would take the loop too long.
  uint64_t warm_bytes_for(const ckpt::ArenaLayout& layout) const;
  // Memory of that layout, where warm_bytes_for() it is not 0. An error is the system's.
  Result<Memory> take(const ckpt::ArenaLayout& layout);
  // Takes out what is too much for so many bytes, and is not being faulted in. Freeing it takes a
  // tenth of a second per GiB.
  std::vector<Memory> shrink(uint64_t bytes_left);

 private:
  bool warm(const Memory& piece) const { return piece.warm_bytes == piece_bytes_; }

  const uint64_t bytes_max_;
  const uint64_t piece_bytes_;
  std::vector<Memory> pieces_;  // all warm but perhaps the last
  bool faulting_ = false;       // in the last
};

}  // namespace ckptd
