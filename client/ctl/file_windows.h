// FileWindows: the bytes of a file in windows of bounded size, and the pieces of units in each.
// Pure.
//
// A tensor in blocks (block_names.h) is read as a few long ranges of units and written as one long
// range of the file, or the reverse: a window has the same rows of all blocks, and only memory sees
// the short runs.
#pragma once

#include <span>
#include <vector>

#include "client/ctl/wanted_bytes.h"
#include "formats/base/bytes.h"

namespace ckptctl {

// A window with spread pieces needs the same memory again, to pack them: as much in all as one
// restore without them.
inline constexpr uint64_t kSpreadWindowBytes = 32 << 20;

struct FileWindow {
  uint64_t begin = 0;  // offset in the file
  uint64_t bytes = 0;
  std::vector<WantedBytes> pieces;  // parts of the given pieces that lie in the window
};

// Bytes of the pieces that are spread.
uint64_t spread_bytes(std::span<const WantedBytes> pieces);

// The windows ascend, do not overlap and contain every byte of the pieces. Without gaps between the
// pieces, the windows have none either, and the pieces of a window fill it.
class FileWindows {
 public:
  struct Limits {
    uint64_t bytes = 0;  // of a window
    size_t pieces = 0;   // of a window
  };
  // `pieces` ascend by destination, do not overlap in the file, and outlive this object.
  FileWindows(std::span<const WantedBytes> pieces, Limits limits)
      : pieces_(pieces), limits_(limits) {}

  // False: there are no more windows.
  bool next(FileWindow& window);

 private:
  // A piece that the windows have reached.
  struct Begun {
    WantedBytes piece;
    uint64_t done = 0;
    uint64_t next_place() const { return place_of(piece, done); }
  };
  uint64_t end_of_next();

  std::span<const WantedBytes> pieces_;
  Limits limits_;
  size_t taken_ = 0;                   // pieces that were begun
  std::vector<Begun> begun_;           // unfinished
  uint64_t position_ = 0;              // end of the last window
  uint64_t reach_ = 0;                 // end of the pieces that were begun
  std::vector<uint64_t> next_places_;  // scratch memory
};

// Copy between a window's bytes as they lie in the file, `image`, and its spread pieces one after
// another, `packed`. Bytes of other pieces stay as they are.
void unpack(const FileWindow& window, ckpt::ByteView packed, ckpt::MutableByteView image);
void pack(const FileWindow& window, ckpt::ByteView image, ckpt::MutableByteView packed);

}  // namespace ckptctl
