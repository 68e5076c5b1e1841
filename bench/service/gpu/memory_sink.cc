#include "bench/service/gpu/memory_sink.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ckpt/ckpt_direct.h"
#include "formats/base/crc32c.h"

namespace bench::gpu {

MemorySink::~MemorySink() {
  if (!arena.empty()) (void)::munmap(arena.data(), arena.size());
}

ckpt::Result<std::unique_ptr<MemorySink>> make_sink(uint64_t slab_bytes, uint32_t slabs) {
  const uint64_t bytes = slab_bytes * slabs;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) {
    return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted, "an arena of {} bytes", bytes);
  }
  auto sink = std::make_unique<MemorySink>();
  sink->arena = {static_cast<std::byte*>(at), bytes};
  sink->slab_bytes = slab_bytes;
  sink->slabs_free = slabs;
  return sink;
}

SinkSnapshot begin_snapshot(MemorySink& sink) {
  SinkSnapshot snapshot;
  snapshot.sink = &sink;
  return snapshot;
}

namespace {

// The window of the place's slab, created if needed, and the offset of the place in it.
std::pair<SinkRestore::Window*, uint64_t> window_of(const SinkSnapshot::Filled& place,
                                                    const MemorySink& sink, SinkRestore& restore) {
  const auto at = static_cast<uint64_t>(place.memory.data() - sink.arena.data());
  const std::byte* const slab = sink.arena.data() + at / sink.slab_bytes * sink.slab_bytes;
  if (restore.windows.empty() || restore.windows.back().data != slab) {
    restore.windows.push_back({.data = slab});
  }
  SinkRestore::Window& window = restore.windows.back();
  const uint64_t offset = at % sink.slab_bytes;
  window.bytes = offset + place.memory.size();
  return {&window, offset};
}

}  // namespace

SinkRestore begin_restore(const SinkSnapshot& snapshot) {
  SinkRestore restore;
  for (const SinkSnapshot::Filled& place : snapshot.places) {
    const auto [window, offset] = window_of(place, *snapshot.sink, restore);
    window->pieces.push_back({.range = place.unit,
                              .offset = place.offset,
                              .length = place.memory.size(),
                              .at = offset,
                              .crc32c = place.crc32c});
  }
  return restore;
}

SinkRestore begin_restore(const SinkSnapshot& snapshot,
                          std::span<const ckpt_cuda_destination> ranges) {
  std::map<uint64_t, std::vector<size_t>> ranges_of;  // by unit
  for (size_t i = 0; i < ranges.size(); ++i) ranges_of[ranges[i].unit].push_back(i);
  SinkRestore restore;
  for (const SinkSnapshot::Filled& place : snapshot.places) {
    if (ckpt::base::crc32c(place.memory) != place.crc32c) ++restore.mismatches;
    const auto [window, offset] = window_of(place, *snapshot.sink, restore);
    for (const size_t number : ranges_of[place.unit]) {
      const ckpt_cuda_destination& range = ranges[number];
      const uint64_t begin = std::max(place.offset, range.offset);
      const uint64_t end =
          std::min(place.offset + place.memory.size(), range.offset + range.length);
      if (begin >= end) continue;
      const uint64_t within = begin - place.offset;
      window->pieces.push_back(
          {.range = number,
           .offset = begin - range.offset,
           .length = end - begin,
           .at = offset + within,
           .crc32c = ckpt::base::crc32c(place.memory.subspan(within, end - begin))});
    }
  }
  return restore;
}

}  // namespace bench::gpu

namespace {

using bench::gpu::MemorySink;
using bench::gpu::SinkRestore;
using bench::gpu::SinkSnapshot;

const MemorySink& of(const ckpt_session* session) {
  return *reinterpret_cast<const MemorySink*>(session);
}
SinkSnapshot& of(ckpt_snapshot* snapshot) { return *reinterpret_cast<SinkSnapshot*>(snapshot); }
SinkRestore& of(ckpt_restore* restore) { return *reinterpret_cast<SinkRestore*>(restore); }

ckpt_status refuse(const SinkSnapshot& snapshot, ckpt_status status, const char* reason) {
  snapshot.sink->error = reason;
  return status;
}

void free_slabs(SinkSnapshot& snapshot) {
  snapshot.sink->slabs_free += snapshot.slabs_used;
  snapshot.slabs_used = 0;
  snapshot.layout.reset();
}

}  // namespace

void* ckpt_arena(const ckpt_session* session, uint64_t* bytes) {
  *bytes = of(session).arena.size();
  return of(session).arena.data();
}

const char* ckpt_session_error(const ckpt_session* session) { return of(session).error.c_str(); }

ckpt_status ckpt_snapshot_reserve(ckpt_snapshot* handle, uint32_t unit, uint64_t offset,
                                  uint64_t length, uint32_t, ckpt_place* place) {
  SinkSnapshot& snapshot = of(handle);
  MemorySink& sink = *snapshot.sink;
  auto found = snapshot.layout ? snapshot.layout->place(length) : std::nullopt;
  if (!found) {
    if (sink.slabs_free == 0) {
      return refuse(snapshot, CKPT_E_RESOURCE_EXHAUSTED, "the sink has no slab left");
    }
    --sink.slabs_free;
    ++snapshot.slabs_used;
    found = snapshot.layout.emplace(sink.slab_bytes).place(length);
  }
  snapshot.layout->fill(found->offset, found->length);
  const uint64_t slab = (snapshot.slabs_used - 1) * sink.slab_bytes;
  std::byte* const at = sink.arena.data() + slab + found->offset;
  const uint64_t given = std::min(found->length, length);
  *place = {.data = at, .length = given, .id = snapshot.places.size()};
  snapshot.places.push_back({.memory = {at, given}, .unit = unit, .offset = offset});
  return CKPT_OK;
}

ckpt_status ckpt_snapshot_filled(ckpt_snapshot* handle, uint64_t place_id, uint32_t crc32c) {
  SinkSnapshot& snapshot = of(handle);
  if (place_id >= snapshot.places.size() || snapshot.places[place_id].is_filled) {
    return refuse(snapshot, CKPT_E_INVALID_ARGUMENT, "a place that is not lent");
  }
  snapshot.places[place_id].is_filled = true;
  snapshot.places[place_id].crc32c = crc32c;
  return snapshot.failed ? CKPT_E_ABORTED : CKPT_OK;
}

ckpt_status ckpt_snapshot_end(ckpt_snapshot* handle) {
  SinkSnapshot& snapshot = of(handle);
  if (snapshot.failed) return CKPT_E_ABORTED;
  const auto& places = snapshot.places;
  if (!std::all_of(places.begin(), places.end(), [](const auto& one) { return one.is_filled; })) {
    return refuse(snapshot, CKPT_E_FAILED_PRECONDITION, "a place is still lent");
  }
  snapshot.ended = true;
  free_slabs(snapshot);
  return CKPT_OK;
}

ckpt_status ckpt_snapshot_abort(ckpt_snapshot* handle, const char* reason) {
  SinkSnapshot& snapshot = of(handle);
  if (!snapshot.failed) free_slabs(snapshot);
  snapshot.failed = true;
  snapshot.sink->error = reason;
  return CKPT_OK;
}

ckpt_status ckpt_restore_next(ckpt_restore* handle, uint32_t, ckpt_restore_window* window) {
  SinkRestore& restore = of(handle);
  *window = {};
  window->struct_size = sizeof *window;
  if (restore.next == restore.windows.size()) {
    window->complete = 1;
    return CKPT_OK;
  }
  const SinkRestore::Window& next = restore.windows[restore.next++];
  window->id = restore.next;
  window->data = next.data;
  window->bytes = next.bytes;
  window->pieces = next.pieces.data();
  window->piece_count = next.pieces.size();
  return CKPT_OK;
}

void ckpt_restore_release(ckpt_restore* restore, uint64_t window_id) {
  of(restore).windows[window_id - 1].released = true;
}

void ckpt_restore_mismatch(ckpt_restore* restore, uint64_t, const ckpt_restore_piece*) {
  ++of(restore).mismatches;
}

// Never finds a file: a MemorySink has no disk.
ckpt_status ckpt_restore_file(ckpt_restore*, ckpt_restore_located*) {
  return CKPT_E_FAILED_PRECONDITION;
}
void ckpt_restore_failed(ckpt_restore*, uint64_t, size_t, const char*) {}
uint64_t ckpt_slab_bytes(const ckpt_session* session) { return of(session).slab_bytes; }
