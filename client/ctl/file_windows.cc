#include "client/ctl/file_windows.h"

#include <algorithm>
#include <cstring>

namespace ckptctl {
namespace {

// Part of the window that stays in the caches while the runs of all its pieces are copied.
constexpr uint64_t kTileBytes = 128 << 10;

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

// Visits the piece's bytes [from, stop) as groups of equal runs: visit(index, place, run, count).
template <typename Visit>
void for_each_group(const WantedBytes& piece, uint64_t from, uint64_t stop, const Visit& visit) {
  while (from < stop) {
    const uint64_t in_run = (piece.skip + from) % piece.run;
    const uint64_t left = stop - from;
    const bool whole = in_run == 0 && left >= piece.run;
    const uint64_t run = whole ? piece.run : std::min(piece.run - in_run, left);
    const uint64_t count = whole ? left / piece.run : 1;
    visit(from, place_of(piece, from), run, count);
    from += run * count;
  }
}

// Visits the groups of all spread pieces, tile by tile: visit(piece, packed offset, image offset,
// run, count).
template <typename Visit>
void for_each_group(const FileWindow& window, const Visit& visit) {
  for (uint64_t tile = 0; tile < window.bytes; tile += kTileBytes) {
    const uint64_t begin = window.begin + tile;
    const uint64_t end = begin + std::min(kTileBytes, window.bytes - tile);
    uint64_t packed = 0;
    for (const WantedBytes& piece : window.pieces) {
      if (!piece.spread()) continue;
      for_each_group(piece, bytes_before(piece, begin), bytes_before(piece, end),
                     [&](uint64_t index, uint64_t place, uint64_t run, uint64_t count) {
                       visit(piece, packed + index, place - window.begin, run, count);
                     });
      packed += piece.length;
    }
  }
}

}  // namespace

uint64_t spread_bytes(std::span<const WantedBytes> pieces) {
  uint64_t bytes = 0;
  for (const WantedBytes& piece : pieces) bytes += piece.spread() ? piece.length : 0;
  return bytes;
}

// Begins the pieces of the next window, and returns the window's end. A gap ends it.
uint64_t FileWindows::end_of_next() {
  const uint64_t full = position_ + limits_.bytes;
  for (; taken_ < pieces_.size(); ++taken_) {
    const WantedBytes& piece = pieces_[taken_];
    if (piece.length == 0) continue;
    if (piece.destination >= full || piece.destination > reach_) break;
    begun_.push_back({piece});
    reach_ = std::max(reach_, place_of(piece, piece.length - 1) + 1);
  }
  const uint64_t end = std::min(full, reach_);
  if (begun_.size() <= limits_.pieces) return end;
  next_places_.clear();
  for (const Begun& begun : begun_) next_places_.push_back(begun.next_place());
  const auto first_out = next_places_.begin() + static_cast<ptrdiff_t>(limits_.pieces);
  std::ranges::nth_element(next_places_, first_out);
  return std::min(end, *first_out);
}

bool FileWindows::next(FileWindow& window) {
  window.pieces.clear();
  if (begun_.empty()) {
    while (taken_ < pieces_.size() && pieces_[taken_].length == 0) ++taken_;
    if (taken_ == pieces_.size()) return false;
    position_ = reach_ = pieces_[taken_].destination;
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

void unpack(const FileWindow& window, ckpt::ByteView packed, ckpt::MutableByteView image) {
  for_each_group(window, [&](const WantedBytes& piece, uint64_t from, uint64_t to, uint64_t run,
                             uint64_t count) {
    copy_runs(image.data() + to, piece.step, packed.data() + from, run, count, run);
  });
}

void pack(const FileWindow& window, ckpt::ByteView image, ckpt::MutableByteView packed) {
  for_each_group(window, [&](const WantedBytes& piece, uint64_t to, uint64_t from, uint64_t run,
                             uint64_t count) {
    copy_runs(packed.data() + to, run, image.data() + from, piece.step, count, run);
  });
}

}  // namespace ckptctl
