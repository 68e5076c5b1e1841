// Faults in memory before its use: first that of sessions, chunk by chunk, then, when idle, that of
// the pool.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>

#include "ckptd/staging/page_guard.h"
#include "ckptd/staging/staging.h"
#include "ckptd/staging/staging_impl.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

// Bytes of memory available without swapping; UINT64_MAX if the kernel does not say.
uint64_t Staging::Impl::available_memory() const {
  if (options.available_memory) return options.available_memory();
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return ~uint64_t{0};
}

// Arenas take turns, so that sessions that open together become usable together. Only one chunk is
// faulted in at a time. One thread gets ascending pages; two threads interleave theirs. A disk
// takes contiguous memory in fewer and larger pieces (a virtual disk with at most 6 GB/s: 4.2-5.0
// GB/s from memory faulted in by one thread, 2.9-3.5 by two).
void Staging::Impl::warm_next() {
  while (!warming && !cold.empty()) {
    const ArenaId id = cold.front();
    cold.pop_front();
    const auto found = arenas.find(id);
    if (found != arenas.end() && !found->second->ended) warm_chunk(*found->second);
  }
}

// Memory of the pool is already faulted in: warm_chunk() is fast for it.
std::optional<WarmPool::Memory> Staging::Impl::take_warm(const ckpt::ArenaLayout& layout) {
  const uint64_t warm = pool.warm_bytes_for(layout);
  if (warm == 0 || layout.arena_bytes() - warm > available_memory()) return std::nullopt;
  auto memory = pool.take(layout);
  if (memory.ok()) return std::move(memory).value();
  spdlog::warn("memory that was kept warm is of no use: {}", memory.error().message);
  return std::nullopt;
}

// Runs on the executor, because the kernel needs long to free so much.
void Staging::Impl::shrink_pool(uint64_t bytes_left) {
  auto dropped = std::make_shared<std::vector<WarmPool::Memory>>(pool.shrink(bytes_left));
  if (dropped->empty()) return;
  ++pool_frees;
  executor.run([dropped] { dropped->clear(); }, [this] { --pool_frees; });
}

// Existing sessions come first, including those that may bring their arenas back. Memory beyond
// what new sessions could get is not kept.
uint64_t Staging::Impl::pool_bytes_max() const {
  uint64_t live = 0;
  for (const auto& [id, arena] : arenas) {
    if (!arena->ended || arena->parked) live += arena->view.layout().arena_bytes();
  }
  return options.arena_bytes_total - std::min(options.arena_bytes_total, live);
}

bool Staging::warm() {
  Impl& impl = *impl_;
  if (impl.closing || impl.warming) return true;
  const uint64_t bytes_max = impl.pool_bytes_max();
  impl.shrink_pool(bytes_max);
  const uint64_t piece = impl.pool.piece_bytes();
  // Running programs need memory more than future sessions.
  const uint64_t available = piece == 0 ? 0 : impl.available_memory();
  if (available < piece / 2)
    impl.shrink_pool(impl.pool.bytes() - std::min(piece, impl.pool.bytes()));
  if (available < 2 * piece) return false;
  const auto failed = [](const Status& status) {
    if (!status.ok()) spdlog::warn("no more memory is kept warm: {}", status.error().message);
    return !status.ok();
  };
  auto next = impl.pool.next_fault();
  if (!next) {
    if (impl.pool.full() || impl.pool.bytes() + piece > bytes_max) return false;
    if (failed(impl.pool.add())) return false;
    next = impl.pool.next_fault();
  }
  impl.warming = true;
  auto outcome = std::make_shared<Status>();
  impl.executor.run([at = *next, outcome] { *outcome = populate(at.guard, at.view); },
                    [&impl, failed, outcome] {
                      impl.warming = false;
                      impl.pool.faulted(!failed(*outcome));
                      impl.warm_next();
                    });
  return true;
}

void Staging::Impl::warm_chunk(ArenaState& arena) {
  const uint32_t chunk = arena.warm_chunks;
  const MutableByteView guard = arena.chunk_bytes(arena.guard, chunk);
  const MutableByteView view = arena.chunk_bytes(arena.view, chunk);
  warming = true;
  arena.warming = true;
  auto outcome = std::make_shared<Status>();
  executor.run([guard, view, outcome] { *outcome = populate(guard, view); },
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
    // The arena stays as small as it is; its warm part is usable.
    spdlog::error("arena {}: {}", id, status.error().message);
  }
  warm_next();
  if (!arena.ended && status.ok()) slabs_ready(id);
  destroy_if_over(id);
}

// Registers the chunk with the disk, unless that would stop the loop: for each huge page the kernel
// walks all registered small pages (48 ms for 64 MiB beside 1 GiB of small pages).
Result<BufferId> Staging::Impl::try_register(ArenaState& arena, MutableByteView chunk) {
  constexpr uint64_t kSmallBytesMax = 256ull << 20;
  if (!page_guard_available()) {
    return make_error(ErrorCode::kUnavailable, "page tables cannot be looked at here");
  }
  const uint64_t huge = huge_bytes(chunk);
  uint64_t small = 0;
  for (const auto& [id, other] : arenas) small += other->small_bytes_registered;
  if (huge > 0 && small > kSmallBytesMax) {
    return make_error(ErrorCode::kUnavailable,
                      "it would take long: new memory has huge pages, and {} with small pages is "
                      "registered",
                      ckpt::base::format_size(small));
  }
  CKPT_ASSIGN(const BufferId buffer, disk.register_buffer(chunk));
  if (huge < chunk.size()) arena.small_bytes_registered += chunk.size();
  return buffer;
}

void Staging::Impl::register_chunk(ArenaState& arena, uint32_t chunk) {
  const Result<BufferId> buffer = try_register(arena, arena.chunk_bytes(arena.guard, chunk));
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
