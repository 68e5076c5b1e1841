// Memory is faulted in before it is used: that of sessions, chunk by chunk, and, when there is
// nothing else to do, that of the pool.
#include <spdlog/spdlog.h>

#include "ckptd/staging/page_guard.h"
#include "ckptd/staging/staging.h"
#include "ckptd/staging/staging_impl.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

// Arenas take turns, so that sessions that open together become usable together. One chunk is
// faulted in at a time: pages that one thread asks for come in ascending order, those of two
// interleave, and a disk takes memory that is contiguous in fewer and larger pieces (a virtual one
// that takes 6 GB/s at best: 4.2-5.0 GB/s from memory faulted in by one thread, 2.9-3.5 by two).
void Staging::Impl::warm_next() {
  while (!warming && !cold.empty()) {
    const ArenaId id = cold.front();
    cold.pop_front();
    const auto found = arenas.find(id);
    if (found != arenas.end() && !found->second->ended) warm_chunk(*found->second);
  }
}

// What is in the pool is faulted in already: warm_chunk() is quick with it.
std::optional<WarmPool::Memory> Staging::Impl::take_warm(const ckpt::ArenaLayout& layout) {
  std::optional<WarmPool::Memory> memory = pool.take(layout);
  const uint64_t live = live_bytes() + layout.arena_bytes();
  pool.shrink(options.arena_bytes_total - std::min(options.arena_bytes_total, live));
  return memory;
}

// A piece that nobody could get is not made: sessions that are there come first.
bool Staging::Impl::may_grow_pool() const {
  const uint64_t piece = pool.piece_bytes();
  return !pool.full() && live_bytes() + pool.bytes() + piece <= options.arena_bytes_total &&
         available_memory_bytes() >= 2 * piece;
}

void Staging::warm() {
  Impl& impl = *impl_;
  if (impl.warming || impl.pool_broken) return;
  const auto broken = [&impl](const Status& status) {
    if (status.ok()) return false;
    spdlog::warn("no more memory is kept warm: {}", status.error().message);
    return impl.pool_broken = true;
  };
  auto next = impl.pool.next_fault();
  if (!next && impl.may_grow_pool()) {
    if (broken(impl.pool.add())) return;
    next = impl.pool.next_fault();
  }
  if (!next) return;
  impl.warming = true;
  auto outcome = std::make_shared<Status>();
  impl.executor.run(
      [at = *next, outcome] {
        *outcome = populate(at.guard);
        if (outcome->ok()) *outcome = populate(at.view);
      },
      [&impl, broken, outcome] {
        impl.warming = false;
        impl.pool.faulted(!broken(*outcome));
        impl.warm_next();
      });
}

void Staging::Impl::warm_chunk(ArenaState& arena) {
  const uint32_t chunk = arena.warm_chunks;
  const MutableByteView guard = arena.chunk_bytes(arena.guard, chunk);
  const MutableByteView view = arena.chunk_bytes(arena.view, chunk);
  warming = true;
  arena.warming = true;
  auto outcome = std::make_shared<Status>();
  executor.run(
      [guard, view, outcome] {
        *outcome = populate(guard);
        if (outcome->ok()) *outcome = populate(view);
      },
      [this, id = arena.id, chunk, outcome] { chunk_warmed(id, chunk, *outcome); });
}

void Staging::Impl::chunk_warmed(ArenaId id, uint32_t chunk, const Status& status) {
  ArenaState& arena = at(id);
  warming = false;
  arena.warming = false;
  if (status.ok()) {
    if (!arena.ended) register_chunk(arena, chunk);
    arena.warm_chunks = chunk + 1;
    if (arena.warm_chunks < arena.chunk_count()) cold.push_back(id);
  } else {
    // The arena stays as small as it is; what is warm can be used.
    spdlog::error("arena {}: {}", id, status.error().message);
  }
  warm_next();
  if (!arena.ended && status.ok()) slabs_ready(id);
  destroy_if_over(id);
}

void Staging::Impl::register_chunk(ArenaState& arena, uint32_t chunk) {
  Result<BufferId> buffer =
      page_guard_available()
          ? disk.register_buffer(arena.chunk_bytes(arena.guard, chunk))
          : make_error(ErrorCode::kUnavailable, "page tables cannot be looked at here");
  if (buffer.ok()) {
    arena.buffers[chunk] = *buffer;
    return;
  }
  zero_copy = false;
  if (!plain_io_logged) {
    spdlog::warn("arenas are not registered with the disk, writes are not zero-copy: {}",
                 buffer.error().message);
    plain_io_logged = true;
  }
}

}  // namespace ckptd
