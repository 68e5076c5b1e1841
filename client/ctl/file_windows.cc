#include "client/ctl/file_windows.h"

#include <algorithm>
#include <cstring>

namespace ckptctl {
namespace {

// A known length saves a call for each run.
template <uint64_t kRun>
void copy_runs_of(std::byte* to, uint64_t to_step, const std::byte* from, uint64_t from_step,
                  uint64_t count) {
  for (; count > 0; --count, to += to_step, from += from_step) std::memcpy(to, from, kRun);
}

void copy_runs(std::byte* to, uint64_t to_step, const std::byte* from, uint64_t from_step,
               uint64_t count, uint64_t run) {
  switch (run) {
    case 1:
      return copy_runs_of<1>(to, to_step, from, from_step, count);
    case 2:
      return copy_runs_of<2>(to, to_step, from, from_step, count);
    case 4:
      return copy_runs_of<4>(to, to_step, from, from_step, count);
    case 8:
      return copy_runs_of<8>(to, to_step, from, from_step, count);
    case 16:
      return copy_runs_of<16>(to, to_step, from, from_step, count);
    case 32:
      return copy_runs_of<32>(to, to_step, from, from_step, count);
    default:
      for (; count > 0; --count, to += to_step, from += from_step) std::memcpy(to, from, run);
  }
}

// Visits the bytes of all pieces as groups of equal runs: visit(piece, offset in memory, offset in
// the window, run, count).
template <typename Visit>
void for_each_group(const FileWindow& window, const Visit& visit) {
  for (const WantedBytes& piece : window.pieces) {
    for (uint64_t at = 0; at < piece.length;) {
      const uint64_t left = piece.length - at;
      const uint64_t in_run = piece.spread() ? (piece.skip + at) % piece.run : 0;
      const uint64_t rest = piece.spread() ? piece.run - in_run : left;
      const bool whole = in_run == 0 && left >= rest;
      const uint64_t run = std::min(rest, left);
      const uint64_t count = whole ? left / run : 1;
      visit(piece, piece.offset + at, place_of(piece, at) - window.begin, run, count);
      at += run * count;
    }
  }
}

}  // namespace

// Begins the pieces of the next window, and returns the window's end.
uint64_t FileWindows::end_of_next() {
  const uint64_t full = position_ + sizes_.most;
  for (; taken_ < pieces_.size(); ++taken_) {
    const WantedBytes& piece = pieces_[taken_];
    if (piece.length == 0) continue;
    const uint64_t first = place_of(piece, 0);
    const bool is_enough = first >= reach_ && reach_ - position_ >= sizes_.usual;
    if (is_enough || first > reach_ || first >= full) break;
    begun_.push_back({piece});
    reach_ = std::max(reach_, place_of(piece, piece.length - 1) + 1);
  }
  const bool is_spread =
      std::ranges::any_of(begun_, [](const Begun& begun) { return begun.piece.spread(); });
  return std::min(reach_, position_ + (is_spread ? sizes_.most : sizes_.usual));
}

bool FileWindows::next(FileWindow& window) {
  window.pieces.clear();
  if (begun_.empty()) {
    while (taken_ < pieces_.size() && pieces_[taken_].length == 0) ++taken_;
    if (taken_ == pieces_.size()) return false;
    position_ = reach_ = place_of(pieces_[taken_], 0);
  }
  const uint64_t end = end_of_next();
  for (Begun& begun : begun_) {
    const uint64_t stop = bytes_before(begun.piece, end);
    if (stop == begun.done) continue;
    window.pieces.push_back(part_of(begun.piece, begun.done, stop - begun.done));
    begun.done = stop;
  }
  std::erase_if(begun_, [](const Begun& begun) { return begun.done == begun.piece.length; });
  window.begin = position_;
  window.bytes = end - position_;
  position_ = end;
  return true;
}

Tiles::Tiles(const FileWindow& window, uint64_t tile_bytes)
    : pieces_(window.pieces), windows_({}, tile_bytes) {
  uint64_t at = 0;
  for (WantedBytes& piece : pieces_) {
    piece.offset = at;
    at += piece.length;
  }
  // A window that begins inside a row has the first blocks of the row only from the next row on.
  std::ranges::sort(pieces_, {}, [](const WantedBytes& piece) { return place_of(piece, 0); });
  windows_ = FileWindows(pieces_, tile_bytes);
}

bool is_filled(const FileWindow& window) {
  uint64_t bytes = 0;
  for (const WantedBytes& piece : window.pieces) bytes += piece.length;
  return bytes == window.bytes;
}

bool any_spread(std::span<const WantedBytes> pieces) {
  return std::ranges::any_of(pieces, &WantedBytes::spread);
}

void unpack(const FileWindow& tile, ckpt::ByteView memory, ckpt::MutableByteView image) {
  for_each_group(tile, [&](const WantedBytes& piece, uint64_t from, uint64_t to, uint64_t run,
                           uint64_t count) {
    copy_runs(image.data() + to, piece.step, memory.data() + from, run, count, run);
  });
}

void pack(const FileWindow& tile, ckpt::ByteView image, ckpt::MutableByteView memory) {
  for_each_group(tile, [&](const WantedBytes& piece, uint64_t to, uint64_t from, uint64_t run,
                           uint64_t count) {
    copy_runs(memory.data() + to, run, image.data() + from, piece.step, count, run);
  });
}

}  // namespace ckptctl
