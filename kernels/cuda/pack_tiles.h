// A block's share of the buffer in pack and unpack: finds the pieces in it and moves their bytes,
// aligned or not.
#pragma once

#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack_tables.h"

namespace ckpt::kernels::pack_tiles {

using pack_tables::Piece;
using pack_tables::Tables;
using pack_tables::Tile;

// The unit that a thread moves at a time; aligned in the buffer.
inline constexpr int kWordBytes = 16;
inline constexpr int kStep = kBlockThreads;  // distance from a thread's word to its next word
// Pieces of a tile in shared memory at a time: each thread fetches one. In a tile with more pieces,
// the next part repeats the last kWordBytes pieces, since so many can share one word.
inline constexpr int kNearPieces = kBlockThreads;
inline constexpr uint32_t kPartPieces = kNearPieces - kWordBytes;

// A tile in words. Positions are bytes from the start of its first word.
struct Words {
  std::byte* first;  // of the buffer; has the tile's first byte
  int begin;         // less than a word
  int end;
  int count;
};

// The part of a piece that lies in the tile.
struct alignas(16) NearPiece {
  uintptr_t origin;  // outside address of position 0, which need not belong to a piece
  int begin;
  int end;
  __device__ std::byte* outside(int at) const {
    return reinterpret_cast<std::byte*>(origin + static_cast<uintptr_t>(at));
  }
};

__device__ inline int misalignment(const std::byte* at, int alignment) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(at) & static_cast<uintptr_t>(alignment - 1));
}

__device__ inline Words words_of(const Tables& tables, const Tile& tile) {
  // Computes with integers: if offsets are addresses, there is no buffer to count from.
  auto* const at = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(tables.buffer) +
                                                static_cast<uintptr_t>(tile.begin));
  const int begin = misalignment(at, kWordBytes);
  const int end = begin + static_cast<int>(tile.end - tile.begin);
  return {at - begin, begin, end, (end + kWordBytes - 1) / kWordBytes};
}

__device__ inline NearPiece near_piece(const Piece& piece, const Tile& tile, const Words& words) {
  const int64_t zero = tile.begin - words.begin;  // buffer offset of position 0
  return {reinterpret_cast<uintptr_t>(piece.outside) + static_cast<uintptr_t>(zero - piece.begin),
          static_cast<int>(std::max(piece.begin, tile.begin) - zero),
          static_cast<int>(std::min(piece.end, tile.end) - zero)};
}

// True if every word of the piece can move as a whole.
__device__ inline bool is_aligned(const NearPiece& piece) {
  return (static_cast<int>(piece.origin) | piece.begin | piece.end) % kWordBytes == 0;
}

// Iterates over the near pieces. Positions must be requested in ascending order.
class Cursor {
 public:
  __device__ Cursor(const NearPiece* near, int count) : near_(near), count_(count) { take(); }

  // Moves to the first piece that ends after `at`; without one, to a piece behind all words.
  __device__ void go_to(int at) {
    if (piece_.end > at) return;
    ++next_;
    if (next_ < count_ && near_[next_].end <= at) {
      int end = count_;
      for (++next_; next_ < end;) {
        const int middle = next_ + (end - next_) / 2;
        if (near_[middle].end > at) {
          end = middle;
        } else {
          next_ = middle + 1;
        }
      }
    }
    take();
  }
  __device__ const NearPiece& piece() const { return piece_; }

 private:
  __device__ void take() {
    constexpr int kBehind = std::numeric_limits<int>::max();
    piece_ = next_ < count_ ? near_[next_] : NearPiece{0, kBehind, kBehind};
  }

  const NearPiece* near_;
  int count_;
  int next_ = 0;
  NearPiece piece_;
};

// Loads the tile's pieces part by part and calls visit(cursor, end, all_aligned) for each part. The
// visitor's share is its unvisited words in front of number `end`. All threads of the block call
// this; shared memory that they wrote before is visible to all of them in `visit`.
template <typename Visit>
__device__ inline void visit_parts(const Tables& tables, const Tile& tile, const Words& words,
                                   NearPiece (&near)[kNearPieces], const Visit& visit) {
  for (uint32_t done = 0;; done += kPartPieces) {
    const uint32_t left = tile.pieces - done;
    const int count = static_cast<int>(std::min<uint32_t>(left, kNearPieces));
    bool all_aligned = words.begin == 0 && words.end % kWordBytes == 0;
    __syncthreads();  // every thread is done with the previous part
    if (static_cast<int>(threadIdx.x) < count) {
      const NearPiece piece =
          near_piece(tables.pieces[tile.first_piece + done + threadIdx.x], tile, words);
      near[threadIdx.x] = piece;
      all_aligned = all_aligned && is_aligned(piece);
    }
    all_aligned = __syncthreads_and(all_aligned ? 1 : 0) != 0;
    const bool is_last = left <= kNearPieces;
    visit(Cursor(near, count), is_last ? words.count : near[count - 1].begin / kWordBytes,
          all_aligned);
    if (is_last) return;
  }
}

__device__ inline uint4 load_word(const std::byte* from) {
  return *reinterpret_cast<const uint4*>(from);
}
__device__ inline void store_word(std::byte* to, const uint4& word) {
  *reinterpret_cast<uint4*>(to) = word;
}

// Loads the word at `at`, which lies wholly in the piece, from outside the buffer.
__device__ inline uint4 load_outside(const NearPiece& piece, int at) {
  const std::byte* const from = piece.outside(at);
  if (misalignment(from, 16) == 0) return load_word(from);
  uint32_t quarter[4] = {};
  const int odd = misalignment(from, 4);
  if (odd == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) quarter[i] = reinterpret_cast<const uint32_t*>(from)[i];
  } else if (at - piece.begin >= odd && piece.end - at >= kWordBytes + 4 - odd) {
    // Reads five aligned quarters; all lie inside the piece.
    const auto* const around = reinterpret_cast<const uint32_t*>(from - odd);
    uint32_t low = around[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t high = around[i + 1];
      quarter[i] = __funnelshift_r(low, high, static_cast<unsigned>(odd) * 8);
      low = high;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) quarter[i / 4] |= static_cast<uint32_t>(from[i]) << (i % 4 * 8);
  }
  return make_uint4(quarter[0], quarter[1], quarter[2], quarter[3]);
}
__device__ inline void store_outside(const NearPiece& piece, int at, const uint4& word) {
  std::byte* const to = piece.outside(at);
  if (misalignment(to, 16) == 0) return store_word(to, word);
  const uint32_t quarter[4] = {word.x, word.y, word.z, word.w};
  if (misalignment(to, 4) == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) reinterpret_cast<uint32_t*>(to)[i] = quarter[i];
  } else if (misalignment(to, 2) == 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(quarter[i / 2] >> (i % 2 * 16));
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[i] = static_cast<std::byte>(quarter[i / 4] >> (i % 4 * 8));
  }
}

// The two directions: each moves a word or a byte and returns the buffer's new value there.
struct Gather {
  __device__ static uint4 word(const NearPiece& piece, int at, std::byte* inside) {
    const uint4 moved = load_outside(piece, at);
    store_word(inside, moved);
    return moved;
  }
  __device__ static std::byte byte(const NearPiece& piece, int at, std::byte* inside) {
    return *inside = *piece.outside(at);
  }
};
struct Scatter {
  __device__ static uint4 word(const NearPiece& piece, int at, std::byte* inside) {
    const uint4 moved = load_word(inside);
    store_outside(piece, at, moved);
    return moved;
  }
  __device__ static std::byte byte(const NearPiece& piece, int at, std::byte* inside) {
    return *piece.outside(at) = *inside;
  }
};

// A word built from single bytes; missing bytes are zeros.
struct WordOfBytes {
  uint64_t half[2] = {};
  __device__ void give(int i, std::byte value) {
    const uint64_t shifted = static_cast<uint64_t>(value) << (i % 8 * 8);
    half[0] |= i < 8 ? shifted : 0;
    half[1] |= i < 8 ? 0 : shifted;
  }
  __device__ uint4 word() const {
    return make_uint4(static_cast<uint32_t>(half[0]), static_cast<uint32_t>(half[0] >> 32),
                      static_cast<uint32_t>(half[1]), static_cast<uint32_t>(half[1] >> 32));
  }
};

// The buffer's word at `at`. Bytes outside the tile, which others may own, read as zeros and are
// never accessed. The same holds below.
__device__ inline uint4 read_word(const Words& words, int at) {
  const std::byte* const inside = words.first + at;
  if (at >= words.begin && at + kWordBytes <= words.end) return load_word(inside);
  WordOfBytes bytes;
#pragma unroll 1
  for (int i = std::max(words.begin - at, 0); i < std::min(words.end - at, int{kWordBytes}); ++i) {
    bytes.give(i, inside[i]);
  }
  return bytes.word();
}

// Moves the pieces' bytes of the word at `at` and returns the buffer's word.
template <typename Direction>
__device__ inline uint4 move_word(const Words& words, Cursor& cursor, int at) {
  std::byte* const inside = words.first + at;
  const int begin = std::max(at, words.begin);
  const int end = std::min(at + kWordBytes, words.end);
  cursor.go_to(begin);
  const NearPiece& piece = cursor.piece();
  if (piece.begin >= end) return read_word(words, at);
  if (piece.begin <= at && piece.end >= at + kWordBytes) return Direction::word(piece, at, inside);
  WordOfBytes bytes;
#pragma unroll 1
  for (int here = begin; here < end; ++here) {
    cursor.go_to(here);
    bytes.give(here - at, piece.begin <= here ? Direction::byte(piece, here, inside + (here - at))
                                              : inside[here - at]);
  }
  return bytes.word();
}

}  // namespace ckpt::kernels::pack_tiles
