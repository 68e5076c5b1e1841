// From queued slabs to written and checked extents.
#include <algorithm>

#include "ckptd/persist/persist_impl.h"
#include "formats/base/checked.h"
#include "formats/codec.h"

namespace ckptd {

namespace {

// Header and payload of a write that has a place; nullopt for a write without one.
std::optional<ExtentPlace> place_of(const ExtentWrite& write) {
  if (write.segment == nullptr) return std::nullopt;
  return ExtentPlace{.segment = write.extent.segment,
                     .offset = write.extent.offset,
                     .bytes = write.extent.header_bytes +
                              ckpt::base::align_up(write.extent.payload_bytes, ckpt::kBlockBytes)};
}

}  // namespace

// Fills the disk's queue up to the limit: pieces of the oldest slab first, so that slabs complete
// one after the other and their checks run beside the writes of the next.
void Persist::Impl::pump() {
  if (pumping) return;
  pumping = true;
  while (!queue.empty() && bytes_in_flight.count() < options.bytes_in_flight_max) {
    const WritePointer write = queue.front();
    if (write->segment == nullptr) {
      const Result<bool> placed = place(*write);
      if (placed.ok() && !*placed) break;  // Segments calls pump() when the next segment is made
      if (!placed.ok()) {
        queue.pop_front();
        stats.bytes_queued -= write->padded_bytes();
        write->error = name_cause(placed.error(), write->snapshot, write->padded_bytes());
        // Reported from the loop, like every result.
        executor.run([] {}, [this, write] { finish(write, *write->error); });
        continue;
      }
      submit_header(write);
    }
    submit_piece(write);
    if (write->submitted_bytes == write->padded_bytes()) queue.pop_front();
  }
  pumping = false;
}

Result<bool> Persist::Impl::place(ExtentWrite& write) {
  SnapshotWrites& snapshot = snapshots.at(write.snapshot);
  if (snapshot.failed.has_value()) return *snapshot.failed;
  WrittenExtent& extent = write.extent;
  const bool encoded = write.encoded_bytes > 0;
  if (!encoded) extent.fragments = write.parts.fragments;
  const uint64_t header_bytes = ckpt::extent_header_bytes(extent.fragments);
  const uint64_t extent_bytes = header_bytes + write.padded_bytes();
  CKPT_ASSIGN(const std::optional<Segments::Place> found, segments.place(extent_bytes));
  if (!found) return false;
  const Segments::Place& place = *found;
  write.segment = place.segment;
  write.slab.mark_writing();
  if (snapshot.unsynced.insert(place.segment->id).second) place.segment->unsynced_snapshots.begun();
  snapshot.reserved_bytes -= std::min(snapshot.reserved_bytes, extent_bytes);

  extent.segment = place.segment->id;
  extent.offset = place.offset;
  extent.header_bytes = static_cast<uint32_t>(header_bytes);
  extent.payload_bytes = encoded ? write.encoded_bytes : write.parts.payload_bytes;
  extent.payload_crc32c = ckpt::payload_crc32c(extent.fragments, write.padded_bytes());
  write.header = AlignedBuffer(header_bytes);
  extent.header_crc32c = ckpt::encode_extent_header({.store = options.store,
                                                     .segment = extent.segment,
                                                     .offset = extent.offset,
                                                     .snapshot = write.snapshot,
                                                     .rank = extent.rank,
                                                     .sequence = next_sequence++,
                                                     .payload_bytes = extent.payload_bytes,
                                                     .payload_crc32c = extent.payload_crc32c,
                                                     .fragments = extent.fragments},
                                                    write.header.bytes());
  return true;
}

void Persist::Impl::submit_header(const WritePointer& write) {
  const size_t bytes = write->header.size();
  bytes_in_flight.begun(bytes);
  meter.began(options.stopwatch());
  write->pieces_in_flight.begun();
  write->segment->writes_in_flight.begun();
  disk.submit({.op = IoOp::kWrite,
               .file = write->segment->file,
               .offset = write->extent.offset,
               .memory = write->header.bytes(),
               .on_done = [this, write, bytes](const Result<uint64_t>& result) {
                 piece_done(write, bytes, result);
               }});
}

void Persist::Impl::submit_piece(const WritePointer& write) {
  const uint64_t offset =
      write->extent.offset + write->extent.header_bytes + write->submitted_bytes;
  const MutableByteView memory = write->next_piece(options.write_piece_bytes);
  const size_t bytes = memory.size();
  stats.bytes_queued -= bytes;
  if (write->error.has_value()) return;  // a piece failed: only dequeue the rest
  bytes_in_flight.begun(bytes);
  meter.began(options.stopwatch());
  write->pieces_in_flight.begun();
  write->segment->writes_in_flight.begun();
  disk.submit({.op = IoOp::kWrite,
               .file = write->segment->file,
               .offset = offset,
               .memory = memory,
               .buffer = write->encoded_bytes > 0 ? std::nullopt : write->slab.buffer(),
               .on_done = [this, write, bytes](const Result<uint64_t>& result) {
                 piece_done(write, bytes, result);
               }});
}

void Persist::Impl::piece_done(const WritePointer& write, size_t bytes,
                               const Result<uint64_t>& result) {
  bytes_in_flight.ended(bytes);
  meter.ended(options.stopwatch(), result.ok() ? bytes : 0);
  write->pieces_in_flight.ended();
  Segment& segment = *write->segment;
  if (result.ok()) {
    stats.bytes_written += bytes;
  } else {
    const ckpt::Error error = name_cause(result.error(), write->snapshot, bytes);
    if (!write->error.has_value()) write->error = error;
    fail_segment(segment, error);
  }
  // No more pieces of a failed or abandoned extent are submitted; this removes its queued
  // pieces.
  pump();
  const bool submitted = write->submitted_bytes == write->padded_bytes();
  if (write->pieces_in_flight.none() && (submitted || write->error.has_value())) {
    if (!submitted) leave_queue(write);
    all_written(write);
  }
  segment.writes_in_flight.ended();
  segments.close_if_done(segment.id);
}

// Removes the rest of the slab from the queue; false if it was not queued.
bool Persist::Impl::leave_queue(const WritePointer& write) {
  const auto queued = std::find(queue.begin(), queue.end(), write);
  if (queued == queue.end()) return false;
  stats.bytes_queued -= write->padded_bytes() - write->submitted_bytes;
  write->submitted_bytes = write->padded_bytes();
  queue.erase(queued);
  return true;
}

void Persist::Impl::report_dead(const ExtentPlace& extent) {
  if (options.on_dead) options.on_dead(extent);
}

void Persist::Impl::abandon_writes(SnapshotWrites& snapshot) {
  for (const ExtentPlace& extent : snapshot.placed) report_dead(extent);
  for (const auto& weak : snapshot.active) {
    const WritePointer write = weak.lock();
    if (write == nullptr) continue;
    write->abandoned = true;
    if (std::erase(to_encode, write) > 0) {
      stats.bytes_queued -= write->padded_bytes();
      finish(write, {});
      continue;
    }
    // Pieces in the kernel and running checks finish by themselves.
    if (leave_queue(write) && write->pieces_in_flight.none()) finish(write, {});
  }
}

void Persist::Impl::all_written(const WritePointer& write) {
  if (!write->error.has_value() && write->segment->failed.has_value()) {
    write->error = write->segment->failed;
  }
  if (write->error.has_value() || write->abandoned) {
    finish(write, write->error.has_value() ? Status(*write->error) : Status());
    return;
  }
  ++stats.extents_written;
  for (const ckpt::ExtentFragment& fragment : write->extent.fragments) {
    const bool delta = ckpt::is_delta(fragment.codec);
    uint64_t& encoded = delta ? stats.delta_raw_bytes : stats.encoded_raw_bytes;
    (fragment.codec == 0 ? stats.raw_bytes : encoded) += fragment.length;
    (delta ? stats.delta_stored_bytes : stats.encoded_stored_bytes) += fragment.encoded_bytes;
  }
  // Check after the write: the checked bytes are then at least as new as the written ones.
  check(write);
}

void Persist::Impl::check(const WritePointer& write) {
  auto checked = std::make_shared<Status>();
  executor.run([write, checked] { *checked = check_payload(write->slab, write->observer); },
               [this, write, checked] {
                 if (!checked->ok()) ++stats.payload_mismatches;
                 finish(write, *checked);
               });
}

void Persist::Impl::finish(const WritePointer& write, const Status& status) {
  writes_open.ended();
  release_buffer(*write);
  start_encodes();
  StagedSlab slab = std::move(write->slab);
  const auto placed = place_of(*write);
  if (write->abandoned) {
    if (placed) report_dead(*placed);
    return;
  }
  SnapshotWrites& snapshot = snapshots.at(write->snapshot);
  std::erase_if(snapshot.active, [](const auto& weak) { return weak.expired(); });
  if (placed) snapshot.placed.push_back(*placed);
  snapshot.writes_open.ended();
  Status outcome = status;
  if (outcome.ok() && snapshot.failed.has_value()) outcome = *snapshot.failed;
  if (!outcome.ok()) {
    if (!snapshot.failed.has_value()) snapshot.failed = outcome.error();
    write->on_done(outcome.error());
    return;
  }
  if (write->frees) {
    slab = StagedSlab();
  } else {
    (write->kept ? snapshot.kept : snapshot.slabs).push_back(std::move(slab));
  }
  write->on_done(std::move(write->extent));
}

void Persist::Impl::fail_segment(Segment& segment, const ckpt::Error& error) {
  segments.seal_off(segment, error);
  const bool full = is_disk_full(error.message);
  const auto now = room();
  for (auto& [key, snapshot] : snapshots) {
    if (snapshot.unsynced.count(segment.id) == 0 || snapshot.failed.has_value()) continue;
    if (full && snapshot.whole_bytes > 0 && now.ok()) {
      shortages.note(key,
                     {.room = *now, .needed_bytes = snapshot.whole_bytes, .of_journal = false});
    }
    snapshot.failed = full ? error
                           : ckpt::make_error(error.code, "segment {} was sealed off: {}",
                                              segment.id, error.message);
  }
}

void Persist::Impl::fail_device(const ckpt::Error& error,
                                const std::set<ckpt::SnapshotKey>& synced) {
  for (Segment* segment : segments.all()) {
    segments.seal_off(*segment, error);
    segments.close_if_done(segment->id);  // an unused spare would otherwise never be closed
  }
  for (auto& [key, snapshot] : snapshots) {
    const bool exposed = !snapshot.unsynced.empty() && synced.count(key) == 0;
    if (!exposed || snapshot.failed.has_value()) continue;
    snapshot.failed = ckpt::make_error(
        error.code, "its extents were not synced when the disk failed: {}", error.message);
  }
}

}  // namespace ckptd
