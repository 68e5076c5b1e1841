// WarmPool: memory for arenas to come, faulted in before anybody asks. The first touch of fresh
// memory is many times slower than a copy into warm memory, and without a pool a session's first
// snapshot pays for it. Pieces are of one size, made one after the other, each zeroed by the kernel
// and never shown to a client before it is given out. Private to staging.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckptd/staging/staging.h"
#include "formats/arena.h"

namespace ckptd {

// Bytes of memory that can be had without swapping; the largest number if the kernel does not say.
uint64_t available_memory_bytes();

class WarmPool {
 public:
  struct Memory {
    ckpt::base::UniqueFd fd;
    ckpt::ArenaMapping guard;
    ckpt::ArenaMapping view;
  };

  // As many pieces as `bytes` has room for; 0: there is no pool.
  WarmPool(uint64_t bytes, uint64_t piece_bytes);

  uint64_t piece_bytes() const { return piece_bytes_; }
  uint64_t bytes() const { return pieces_.size() * piece_bytes_; }  // of all its pieces
  uint64_t warm_bytes() const;                                      // of those faulted in
  bool full() const { return bytes() + piece_bytes_ > bytes_max_ || piece_bytes_ == 0; }

  // One more, not faulted in. kResourceExhausted: the system gives none.
  Status add();
  // What is to be faulted in next, in ascending order; nullopt: all of it is. Of a piece whose
  // faulting() has been asked for until faulted(), nothing is given out or dropped.
  struct Faulting {
    MutableByteView guard;
    MutableByteView view;
  };
  std::optional<Faulting> next_fault();
  void faulted(bool good);  // bad: that piece goes

  // Memory of that layout, faulted in as far as a piece reaches. nullopt: none is warm, or
  // the layout is so much smaller that giving back the rest would take the loop too long.
  std::optional<Memory> take(const ckpt::ArenaLayout& layout);
  // Gives up what is not being faulted in until at most so many bytes are left.
  void shrink(uint64_t bytes_left);

 private:
  struct Piece {
    Memory memory;
    uint64_t warm_bytes = 0;
  };
  bool warm(const Piece& piece) const { return piece.warm_bytes == piece_bytes_; }

  const uint64_t bytes_max_;
  const uint64_t piece_bytes_;
  std::vector<Piece> pieces_;  // all warm but perhaps the last
  bool faulting_ = false;      // in the last
};

}  // namespace ckptd
