#include "client/src/session_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace ckpt::lib {

Result<ArenaMapping> SessionArena::map(int fd, const ArenaLayout& layout) {
  CKPT_ASSIGN(ArenaMapping mapping, ArenaMapping::map(fd, layout));
  const MutableByteView bytes = mapping.bytes();
  if (::madvise(bytes.data(), bytes.size(), MADV_DONTFORK) != 0) {
    return make_error(ErrorCode::kIo, "arena of {} bytes: madvise failed", bytes.size());
  }
  return mapping;
}

uint32_t SessionArena::snapshot_slabs() const {
  constexpr uint32_t kForRestores = 2;  // that older daemons keep, of at most half of all slabs
  const uint32_t all = mapping_ ? mapping_->layout().slab_count : 0;
  if (snapshot_slabs_ == 0) return all - std::min(kForRestores, all / 2);
  return std::min(snapshot_slabs_, all);
}

void SessionArena::replace(ArenaMapping mapping, base::UniqueFd fd, uint64_t warm_bytes) {
  if (mapping_ && pinned_) retired_.push_back(*std::move(mapping_));
  pinned_ = false;
  mapping_.emplace(std::move(mapping));
  fd_ = std::move(fd);
  const ArenaLayout& layout = mapping_->layout();
  slab_populated_.assign(layout.slab_count, false);
  slabs_warm_ =
      static_cast<uint32_t>(std::min(warm_bytes, layout.arena_bytes()) / layout.slab_bytes);
}

const ArenaMapping* SessionArena::pin() {
  pinned_ = mapping_.has_value();
  return mapping();
}

MutableByteView SessionArena::warm(uint32_t slab) {
  const MutableByteView bytes = mapping_->slab(slab);
  if (!slab_populated_[slab]) {
    // The daemon has made the pages. A read fault maps 16 of them at a time, and writable: three
    // times as fast as write faults. Kernels before 5.14 refuse this; then the copy faults the
    // pages in, slower.
    (void)::madvise(bytes.data(), bytes.size(), MADV_POPULATE_READ);
    slab_populated_[slab] = true;
  }
  return bytes;
}

void SessionArena::forget_in_child() {
  static auto* const never_unmapped = new std::vector<ArenaMapping>;
  if (mapping_) never_unmapped->push_back(*std::exchange(mapping_, std::nullopt));
  for (ArenaMapping& retired : retired_) never_unmapped->push_back(std::move(retired));
  retired_.clear();
}

}  // namespace ckpt::lib
