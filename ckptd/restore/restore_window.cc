// Fills one window: places slices in the slab, and reads their bytes.
#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/restore/restore_impl.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;
using ckpt::base::align_down;
using ckpt::base::align_up;

// Copies from the memory level need no block alignment; this aligns them to cache lines.
constexpr uint64_t kMemorySlotAlignment = 64;

bool overlaps(const RestoreSlot& slot, const RestoreRun& piece) {
  const RestoreSlice& slice = slot.slice;
  return slot.source == Source::kSegment && slice.fragment->place.segment == piece.segment &&
         slot.encoded.has_value() == piece.encoded && slice.file_begin() < piece.file_end &&
         piece.file_begin < slice.file_end();
}

// True if any of the slot's base lies in the piece.
bool overlaps_base(const RestoreSlot& slot, const RestoreRun& piece) {
  if (!slot.base || !piece.encoded) return false;
  const FragmentPlace base = base_of(slot.slice.fragment->place);
  return base.segment == piece.segment && base.payload_offset < piece.file_end &&
         piece.file_begin < base.stored_end();
}

// Marks the slot as failed if a short or failed read of the piece concerns it.
void take_failed_read(RestoreSlot& slot, const RestoreRun& piece, const Result<uint64_t>& bytes) {
  const bool own = overlaps(slot, piece);
  if (!slot.status.ok() || (!own && !overlaps_base(slot, piece))) return;
  const uint64_t got_end = piece.file_begin + (bytes.ok() ? *bytes : 0);
  const uint64_t wanted_end =
      own ? slot.slice.file_end() : base_of(slot.slice.fragment->place).stored_end();
  if (!bytes.ok()) {
    slot.status = bytes.error();
  } else if (got_end < std::min(piece.file_end, wanted_end)) {
    slot.status = make_error(ErrorCode::kCorrupt, "the file ends at byte {}", got_end);
  }
  slot.base_failed = !own && !slot.status.ok();
}

// Adds the pieces of the slot for the client: the wanted parts that lie in this slice.
void make_pieces(RestoreSlot& slot, ckpt::ByteView slice_bytes) {
  const RestoreFragment& fragment = *slot.slice.fragment;
  const uint64_t slice_begin = fragment.place.offset + slot.slice.offset;  // in the unit
  const uint64_t slice_end = slice_begin + slot.slice.length;
  for (const RestoreFragment::Part& part : fragment.parts) {
    const uint64_t from = std::max(part.range.offset, slice_begin);
    const uint64_t to = std::min(part.range.offset + part.range.length, slice_end);
    if (from >= to) continue;
    const bool whole = from == slice_begin && to == slice_end;
    const uint32_t crc =
        whole ? slot.crc32c
              : ckpt::base::crc32c(slice_bytes.subspan(from - slice_begin, to - from));
    slot.pieces.push_back({part.want,
                           {fragment.unit, from, to - from},
                           slot.slab_offset + (from - slice_begin),
                           crc,
                           slot.source});
  }
}

}  // namespace

void check_window(FillingWindow& window, DecodeMeter* meter) {
  decode_window(window, meter);
  for (RestoreSlot& slot : window.slots) {
    if (!slot.status.ok()) continue;
    const auto bytes = window.bytes.subspan(slot.slab_offset, slot.slice.length);
    if (slot.lease) {
      slot.crc32c = ckpt::base::copy_crc32c(
          bytes, slot.lease->bytes.subspan(slot.slice.offset, slot.slice.length));
    } else {
      slot.crc32c = ckpt::base::crc32c(bytes);
    }
    const RestoreFragment& fragment = *slot.slice.fragment;
    if (slot.slice.length == fragment.place.length && !crc_holds(fragment, slot.crc32c)) {
      slot.status = make_error(ErrorCode::kCorrupt, kMismatch);
      continue;
    }
    make_pieces(slot, bytes);
  }
}

void RestoreJob::Impl::fill(uint32_t slab) {
  FillingWindow& window = filling.emplace_back();
  window.slab = slab;
  window.bytes = context.staging.slab_bytes(arena, slab);
  size_t pieces = 0;
  while (!queue.empty()) {
    const RestoreSlice slice = queue.front();
    pieces += slice.fragment->parts.size();
    const bool too_many = pieces > limits::kPiecesPerWindowMax && !window.slots.empty();
    // Fragments that the client reads are sent separately, in their turn.
    const bool enough = window.encoded_bytes >= limits::kEncodedWindowBytesMax;
    const bool ends = too_many || enough || to_locate(*slice.fragment);
    if (!slice.fragment->dropped && (ends || !place(window, slice))) break;
    queue.pop_front();
  }
  // One extra count, so that a read that fails at once does not finish the window early.
  window.pending = 1 + window.runs.size();
  for (size_t run = 0; run < window.runs.size(); ++run) read_run(window, run);
  window.pending -= 1;
  filled_if_complete(window);
}

bool RestoreJob::Impl::place(FillingWindow& window, const RestoreSlice& slice) {
  if (slice.fragment->source == Source::kMemory) return place_from_memory(window, slice);
  return place_from_segment(window, slice);
}

bool RestoreJob::Impl::place_from_memory(FillingWindow& window, const RestoreSlice& slice) {
  const RestoreFragment& fragment = *slice.fragment;
  const uint64_t at = align_up(window.used, kMemorySlotAlignment);
  if (!ckpt::base::range_fits(at, slice.length, window.bytes.size())) return false;
  auto lease = context.staging.find_cached(uid, fragment.snapshot, fragment.unit,
                                           fragment.place.offset, fragment.place.length);
  // Without a lease, the slab was evicted after the plan was made.
  const bool on_disk = fragment.place.segment != kNoSegment;
  if (!lease && on_disk) return place_from_segment(window, slice);
  RestoreSlot slot;
  if (!lease) slot.status = make_error(ErrorCode::kCorrupt, "its slab cannot be trusted any more");
  slot.slice = slice;
  slot.slab_offset = at;
  slot.source = Source::kMemory;
  slot.lease = std::move(lease);
  window.slots.push_back(std::move(slot));
  window.used = at + slice.length;
  return true;
}

// Extents of a delta and its base usually alternate in the queue, so a fragment may extend either
// of the last two runs.
size_t RestoreJob::Impl::add_encoded(FillingWindow& window, const FragmentPlace& place) {
  const uint64_t begin = align_down(place.payload_offset, kBlockBytes);
  const uint64_t end = align_up(place.stored_end(), kBlockBytes);
  const size_t runs = window.runs.size();
  for (size_t number = runs; number > 0 && number + 2 > runs; --number) {
    RestoreRun& run = window.runs[number - 1];
    const bool joins = run.encoded && run.segment == place.segment && begin >= run.file_begin &&
                       begin <= run.file_end && end - run.file_begin <= limits::kWritePieceBytes;
    if (!joins) continue;
    window.encoded_bytes += std::max(run.file_end, end) - run.file_end;
    run.file_end = std::max(run.file_end, end);
    return number - 1;
  }
  window.runs.push_back({place.segment, begin, end, 0, true});
  window.encoded_bytes += end - begin;
  return runs;
}

bool RestoreJob::Impl::place_encoded(FillingWindow& window, const RestoreSlice& slice) {
  const uint64_t at = align_up(window.used, kMemorySlotAlignment);
  if (!ckpt::base::range_fits(at, slice.length, window.bytes.size())) return false;
  const FragmentPlace& place = slice.fragment->place;
  window.used = at + slice.length;
  RestoreSlot slot;
  slot.slice = slice;
  slot.slab_offset = at;
  slot.encoded = add_encoded(window, place);
  if (place.base) slot.base = add_encoded(window, base_of(place));
  window.slots.push_back(std::move(slot));
  return true;
}

bool RestoreJob::Impl::place_from_segment(FillingWindow& window, const RestoreSlice& slice) {
  if (slice.encoded()) return place_encoded(window, slice);
  const ckpt::SegmentId segment = slice.fragment->place.segment;
  const uint64_t begin = align_down(slice.file_begin(), kBlockBytes);
  const uint64_t end = align_up(slice.file_end(), kBlockBytes);
  RestoreRun* last = window.runs.empty() ? nullptr : &window.runs.back();
  // Extends the last run if this range begins at its end, or in its last block: one request less.
  // The run must be the last thing in the slab, so that it can grow.
  const bool joins = last != nullptr && !last->encoded && last->segment == segment &&
                     begin >= last->file_begin && begin <= last->file_end &&
                     window.used == last->slab_offset + (last->file_end - last->file_begin);
  const uint64_t run_at = joins ? last->slab_offset : align_up(window.used, kBlockBytes);
  const uint64_t run_begin = joins ? last->file_begin : begin;
  const uint64_t run_end = joins ? std::max(last->file_end, end) : end;
  if (!ckpt::base::range_fits(run_at, run_end - run_begin, window.bytes.size())) return false;

  if (joins) {
    last->file_end = run_end;
  } else {
    window.runs.push_back({segment, begin, end, run_at, false});
  }
  window.used = run_at + (run_end - run_begin);
  RestoreSlot slot;
  slot.slice = slice;
  slot.slab_offset = run_at + (slice.file_begin() - run_begin);
  window.slots.push_back(std::move(slot));
  return true;
}

void RestoreJob::Impl::read_run(FillingWindow& window, size_t number) {
  const RestoreRun run = window.runs[number];
  context.segments.open(run.segment, [this, &window, run, number](Result<SegmentHandle> file) {
    if (!file.ok()) {
      read_done(window, run, file.error());
      return;
    }
    window.files.push_back(*file);
    window.pending -= 1;  // the open; its reads follow
    const MutableByteView memory =
        run.encoded
            ? (window.encoded[number] = AlignedBuffer(run.file_end - run.file_begin)).bytes()
            : window.bytes.subspan(run.slab_offset, run.file_end - run.file_begin);
    for (uint64_t at = run.file_begin; at < run.file_end; at += limits::kWritePieceBytes) {
      const uint64_t end = std::min<uint64_t>(run.file_end, at + limits::kWritePieceBytes);
      const RestoreRun piece{run.segment, at, end, 0, run.encoded};
      const MutableByteView into = memory.subspan(at - run.file_begin, end - at);
      window.pending += 1;
      unsubmitted.emplace_back([this, &window, piece, into, id = **file] {
        context.disk.submit({.op = IoOp::kRead,
                             .file = id,
                             .offset = piece.file_begin,
                             .memory = into,
                             .buffer = piece.encoded
                                           ? std::nullopt
                                           : context.staging.slab_buffer(arena, window.slab),
                             .on_done = [this, &window, piece](const Result<uint64_t>& bytes) {
                               reads_in_flight -= 1;
                               read_done(window, piece, bytes);
                               submit_reads();
                             }});
      });
    }
    submit_reads();
  });
}

void RestoreJob::Impl::submit_reads() {
  while (!unsubmitted.empty() && reads_in_flight < limits::kRestoreReadsInFlightMax) {
    const auto submit = std::move(unsubmitted.front());
    unsubmitted.pop_front();
    reads_in_flight += 1;
    submit();
  }
}

void RestoreJob::Impl::read_done(FillingWindow& window, const RestoreRun& piece,
                                 const Result<uint64_t>& bytes) {
  const bool whole = bytes.ok() && *bytes == piece.file_end - piece.file_begin;
  for (RestoreSlot& slot : window.slots) {
    if (!whole) take_failed_read(slot, piece, bytes);
  }
  window.pending -= 1;
  filled_if_complete(window);
}

void RestoreJob::Impl::filled_if_complete(FillingWindow& window) {
  if (window.pending > 0) return;
  context.executor.run([&window, meter = context.decoded] { check_window(window, meter); },
                       [this, &window] { checked(window); });
}

}  // namespace ckptd
