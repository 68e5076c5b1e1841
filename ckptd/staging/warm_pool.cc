#include "ckptd/staging/warm_pool.h"

#include <algorithm>
#include <fstream>

#include "ckptd/limits.h"

namespace ckptd {

using ckpt::ArenaLayout;
using ckpt::ArenaMapping;

namespace {

// Any layout will do until somebody asks for one.
ArenaLayout layout_of_piece(uint64_t bytes) {
  return {.slab_bytes = ckpt::kSlabBytesMin,
          .slab_count = static_cast<uint32_t>(bytes / ckpt::kSlabBytesMin)};
}

}  // namespace

uint64_t available_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return ~uint64_t{0};
}

WarmPool::WarmPool(uint64_t bytes, uint64_t piece_bytes)
    : bytes_max_(bytes),
      piece_bytes_(layout_of_piece(std::min(bytes, piece_bytes)).arena_bytes()) {}

uint64_t WarmPool::warm_bytes() const {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.warm_bytes;
  return bytes;
}

Status WarmPool::add() {
  CKPT_ASSERT(!full() && !faulting_);
  const ArenaLayout layout = layout_of_piece(piece_bytes_);
  CKPT_ASSIGN(auto created, ArenaMapping::create_unsealed(layout));
  CKPT_ASSIGN(ArenaMapping view, ArenaMapping::map_unsealed(created.fd.get(), layout));
  pieces_.push_back({.memory = {.fd = std::move(created.fd),
                                .guard = std::move(created.mapping),
                                .view = std::move(view)}});
  return {};
}

std::optional<WarmPool::Faulting> WarmPool::next_fault() {
  CKPT_ASSERT(!faulting_);
  if (pieces_.empty() || warm(pieces_.back())) return std::nullopt;
  const Piece& piece = pieces_.back();
  const uint64_t length = std::min(limits::kWarmPoolStepBytes, piece_bytes_ - piece.warm_bytes);
  faulting_ = true;
  return Faulting{.guard = piece.memory.guard.bytes().subspan(piece.warm_bytes, length),
                  .view = piece.memory.view.bytes().subspan(piece.warm_bytes, length)};
}

void WarmPool::faulted(bool good) {
  CKPT_ASSERT(faulting_);
  faulting_ = false;
  if (!good) return pieces_.pop_back();
  uint64_t& warm = pieces_.back().warm_bytes;
  warm += std::min(limits::kWarmPoolStepBytes, piece_bytes_ - warm);
}

std::optional<WarmPool::Memory> WarmPool::take(const ArenaLayout& layout) {
  if (pieces_.empty() || !warm(pieces_.front())) return std::nullopt;
  if (layout.arena_bytes() + limits::kWarmPoolTrimBytesMax < piece_bytes_) return std::nullopt;
  Memory memory = std::move(pieces_.front().memory);
  pieces_.erase(pieces_.begin());
  Status status = ArenaMapping::resize_and_seal(memory.fd.get(), layout);
  if (status.ok()) status = memory.guard.remap(layout);
  if (status.ok()) status = memory.view.remap(layout);
  return status.ok() ? std::optional(std::move(memory)) : std::nullopt;
}

void WarmPool::shrink(uint64_t bytes_left) {
  while (bytes() > bytes_left) {
    // The last one may be in use; those before it are not.
    const bool last = pieces_.size() == 1;
    if (last && faulting_) return;
    pieces_.erase(pieces_.begin());
  }
}

}  // namespace ckptd
