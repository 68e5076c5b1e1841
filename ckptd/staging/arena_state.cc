#include "ckptd/staging/arena_state.h"

#include <algorithm>

namespace ckptd {

ArenaState::ArenaState(ArenaId arena, uid_t owner, ckpt::base::UniqueFd memfd,
                       ckpt::ArenaMapping guard_mapping, ckpt::ArenaMapping view_mapping,
                       uint32_t reserved_slabs)
    : id(arena),
      uid(owner),
      fd(std::move(memfd)),
      guard(std::move(guard_mapping)),
      view(std::move(view_mapping)),
      chunk_slabs(
          static_cast<uint32_t>(std::max<uint64_t>(1, kChunkBytes / view.layout().slab_bytes))) {
  const uint32_t count = view.layout().slab_count;
  slabs.resize(count);
  // Reserves the first slabs, which become warm first. A rank begins with a restore, which should
  // not wait until a large arena is faulted in completely.
  for (uint32_t i = 0; i < reserved_slabs; ++i) slabs[i].reserved = true;
  buffers.resize((count + chunk_slabs - 1) / chunk_slabs);
}

MutableByteView ArenaState::chunk_bytes(const ckpt::ArenaMapping& mapping, uint32_t chunk) const {
  const ckpt::ArenaLayout& layout = view.layout();
  const uint64_t begin = uint64_t{chunk} * chunk_slabs * layout.slab_bytes;
  const uint64_t length =
      std::min<uint64_t>(chunk_slabs * layout.slab_bytes, layout.arena_bytes() - begin);
  return mapping.bytes().subspan(begin, length);
}

bool ArenaState::idle() const {
  if (warming) return false;
  return std::all_of(slabs.begin(), slabs.end(), [](const SlabRecord& slab) {
    return slab.leases.none() &&
           (slab.state == SlabState::kFree || slab.state == SlabState::kDurable ||
            slab.state == SlabState::kHeld);
  });
}

}  // namespace ckptd
