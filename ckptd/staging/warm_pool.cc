#include "ckptd/staging/warm_pool.h"

#include <algorithm>

#include "ckptd/limits.h"

namespace ckptd {

using ckpt::ArenaLayout;
using ckpt::ArenaMapping;

namespace {

// Any layout works until an arena takes the piece.
ArenaLayout layout_of_piece(uint64_t bytes) {
  return {.slab_bytes = ckpt::kSlabBytesMin,
          .slab_count = static_cast<uint32_t>(bytes / ckpt::kSlabBytesMin)};
}

}  // namespace

WarmPool::WarmPool(uint64_t bytes, uint64_t piece_bytes)
    : bytes_max_(bytes),
      piece_bytes_(layout_of_piece(std::min(bytes, piece_bytes)).arena_bytes()) {}

uint64_t WarmPool::warm_bytes() const {
  uint64_t bytes = 0;
  for (const Memory& piece : pieces_) bytes += piece.warm_bytes;
  return bytes;
}

Status WarmPool::add() {
  CKPT_ASSERT(!full() && !faulting_);
  const ArenaLayout layout = layout_of_piece(piece_bytes_);
  CKPT_ASSIGN(auto created, ArenaMapping::create_unsealed(layout));
  CKPT_ASSIGN(ArenaMapping view, ArenaMapping::map_unsealed(created.fd.get(), layout));
  pieces_.push_back(
      {.fd = std::move(created.fd), .guard = std::move(created.mapping), .view = std::move(view)});
  return {};
}

std::optional<WarmPool::Faulting> WarmPool::next_fault() {
  if (faulting_ || pieces_.empty() || warm(pieces_.back())) return std::nullopt;
  const Memory& piece = pieces_.back();
  const uint64_t length = std::min(limits::kWarmPoolStepBytes, piece_bytes_ - piece.warm_bytes);
  faulting_ = true;
  return Faulting{.guard = piece.guard.bytes().subspan(piece.warm_bytes, length),
                  .view = piece.view.bytes().subspan(piece.warm_bytes, length)};
}

void WarmPool::faulted(bool good) {
  CKPT_ASSERT(faulting_);
  faulting_ = false;
  if (!good) return pieces_.pop_back();
  uint64_t& warm = pieces_.back().warm_bytes;
  warm += std::min(limits::kWarmPoolStepBytes, piece_bytes_ - warm);
}

uint64_t WarmPool::warm_bytes_for(const ArenaLayout& layout) const {
  const bool in_use = faulting_ && pieces_.size() == 1;
  if (pieces_.empty() || in_use) return 0;
  if (layout.arena_bytes() + limits::kWarmPoolTrimBytesMax < piece_bytes_) return 0;
  return std::min(layout.arena_bytes(), pieces_.front().warm_bytes);
}

Result<WarmPool::Memory> WarmPool::take(const ArenaLayout& layout) {
  CKPT_ASSERT(warm_bytes_for(layout) > 0);
  Memory memory = std::move(pieces_.front());
  pieces_.erase(pieces_.begin());
  memory.warm_bytes = std::min(memory.warm_bytes, layout.arena_bytes());
  CKPT_TRY(ArenaMapping::resize_and_seal(memory.fd.get(), layout));
  CKPT_TRY(memory.guard.remap(layout));
  CKPT_TRY(memory.view.remap(layout));
  return memory;
}

std::vector<WarmPool::Memory> WarmPool::shrink(uint64_t bytes_left) {
  std::vector<Memory> dropped;
  while (bytes() > bytes_left && pieces_.size() > (faulting_ ? 1 : 0)) {
    // The last piece is the least warm one, unless it is being faulted in.
    const auto piece = faulting_ ? pieces_.begin() : pieces_.end() - 1;
    dropped.push_back(std::move(*piece));
    pieces_.erase(piece);
  }
  return dropped;
}

}  // namespace ckptd
