// FileWindows: the bytes of a file in windows of bounded size, and the pieces of units in each.
// Pure.
//
// A tensor in blocks (block_names.h) is read as a few long ranges of units and written as one long
// range of the file, or the reverse: a window has the same rows of all blocks, and only memory sees
// the short runs. Exports and imports use windows of two sizes. The large one bounds the memory for
// the bytes as they lie in units, packed. The small one fits into a processor's cache.
#pragma once

#include <span>
#include <vector>

#include "client/ctl/wanted_bytes.h"
#include "formats/base/bytes.h"

namespace ckptctl {

inline constexpr uint64_t kTileBytes = 256 << 10;

struct FileWindow {
  uint64_t begin = 0;  // offset in the file
  uint64_t bytes = 0;
  std::vector<WantedBytes> pieces;  // parts of the given pieces that lie in the window
};

// The windows ascend, do not overlap and contain every byte of the pieces. Without gaps between the
// pieces, the windows have none either, and the pieces of a window fill it.
class FileWindows {
 public:
  struct Sizes {
    // Bytes of a window without spread pieces. Other windows go on from there to the next end of a
    // piece that no other piece overlaps in the file: the end of a tensor.
    uint64_t usual = 0;
    uint64_t most = 0;
  };
  // `pieces` ascend by the place of their first byte, do not overlap in the file, and outlive this
  // object.
  FileWindows(std::span<const WantedBytes> pieces, Sizes sizes) : pieces_(pieces), sizes_(sizes) {}
  FileWindows(std::span<const WantedBytes> pieces, uint64_t window_bytes)
      : FileWindows(pieces, Sizes{window_bytes, window_bytes}) {}

  // False: there are no more windows.
  bool next(FileWindow& window);

 private:
  // A piece that the windows have reached.
  struct Begun {
    WantedBytes piece;
    uint64_t done = 0;
  };
  uint64_t end_of_next();

  std::span<const WantedBytes> pieces_;
  Sizes sizes_;
  size_t taken_ = 0;          // pieces that were begun
  std::vector<Begun> begun_;  // unfinished
  uint64_t position_ = 0;     // end of the last window
  uint64_t reach_ = 0;        // end of the pieces that were begun
};

// The small windows of a large one whose pieces lie in memory, one after another in their order. In
// a tile, `offset` of a piece is the place there.
class Tiles {
 public:
  explicit Tiles(const FileWindow& window, uint64_t tile_bytes = kTileBytes);
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
  bool next(FileWindow& tile) { return windows_.next(tile); }

 private:
  std::vector<WantedBytes> pieces_;
  FileWindows windows_;
};

// True if the pieces have as many bytes as the window: no holes.
bool is_filled(const FileWindow& window);
bool any_spread(std::span<const WantedBytes> pieces);
// Copy between the bytes of a tile in the file, `image`, and in memory.
void unpack(const FileWindow& tile, ckpt::ByteView memory, ckpt::MutableByteView image);
void pack(const FileWindow& tile, ckpt::ByteView image, ckpt::MutableByteView memory);

}  // namespace ckptctl
