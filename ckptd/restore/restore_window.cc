// Fills one window: places slices in the slab, and reads their bytes.
#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/restore/restore_impl.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::align_down;
using ckpt::base::align_up;

// Copies need no block alignment; this aligns them to cache lines.
constexpr uint64_t kCopySlotAlignment = 64;

bool overlaps(const RestoreSlot& slot, const RestoreRun& piece) {
  const RestoreSlice& slice = slot.slice;
  const Address& at = slot.place.address;
  return slot.place.source == piece.source && at.container == piece.container &&
         slot.encoded.has_value() == piece.encoded && slice.read_begin(at) < piece.end &&
         piece.begin < slice.read_end(at);
}

// End of the stored bytes of the slot's base.
uint64_t base_end(const RestoreSlot& slot) {
  return slot.base->at.offset + base_of(slot.slice.fragment->stored).stored_bytes();
}

// True if any of the slot's base lies in the piece.
bool overlaps_base(const RestoreSlot& slot, const RestoreRun& piece) {
  if (!slot.base || !piece.encoded) return false;
  const Address& at = slot.base->at;
  return slot.place.source == piece.source && at.container == piece.container &&
         at.offset < piece.end && piece.begin < base_end(slot);
}

// Marks the slot as failed if a short or failed read of the piece concerns it.
void take_failed_read(RestoreSlot& slot, const RestoreRun& piece, const Result<uint64_t>& bytes,
                      SourceFailure failure) {
  const bool own = overlaps(slot, piece);
  if (!slot.status.ok() || (!own && !overlaps_base(slot, piece))) return;
  const uint64_t got_end = piece.begin + (bytes.ok() ? *bytes : 0);
  const uint64_t wanted_end = own ? slot.slice.read_end(slot.place.address) : base_end(slot);
  if (!bytes.ok()) {
    slot.status = bytes.error();
  } else if (got_end < std::min(piece.end, wanted_end)) {
    slot.status = make_error(ErrorCode::kCorrupt, "the file ends at byte {}", got_end);
  }
  slot.base_failed = !own && !slot.status.ok();
  if (!slot.status.ok()) slot.failure = failure;
}

// Adds the pieces of the slot for the client: the wanted parts that lie in this slice.
void make_pieces(RestoreSlot& slot, ckpt::ByteView slice_bytes) {
  const RestoreFragment& fragment = *slot.slice.fragment;
  const uint64_t slice_begin = fragment.stored.offset + slot.slice.offset;  // in the unit
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
                           slot.place.source});
  }
}

}  // namespace

void check_window(FillingWindow& window, DecodeMeter* meter) {
  decode_window(window, meter);
  for (RestoreSlot& slot : window.slots) {
    if (!slot.status.ok()) continue;
    const auto bytes = window.bytes.subspan(slot.slab_offset, slot.slice.length);
    if (slot.staged) {
      slot.crc32c = ckpt::base::copy_crc32c(
          bytes, slot.staged->bytes.subspan(slot.slice.offset, slot.slice.length));
    } else {
      slot.crc32c = ckpt::base::crc32c(bytes);
    }
    const RestoreFragment& fragment = *slot.slice.fragment;
    if (slot.slice.length == fragment.stored.length && !crc_holds(fragment, slot.crc32c)) {
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
  const FragmentName name = name_of(*slice.fragment);
  Place at = slice.fragment->place;
  while (context.sources.at(at.source).traits().staged) {
    const uint64_t slab_offset = align_up(window.used, kCopySlotAlignment);
    if (!ckpt::base::range_fits(slab_offset, slice.length, window.bytes.size())) return false;
    auto staged = context.sources.at(at.source).lease(name);
    // Without a lease, the bytes were evicted after the plan was made.
    if (!staged.ok()) {
      if (const auto next = context.sources.after(at.source, name)) {
        at = *next;
        continue;
      }
    }
    RestoreSlot slot;
    slot.slice = slice;
    slot.slab_offset = slab_offset;
    slot.place = at;
    if (staged.ok()) {
      slot.staged = std::move(staged).value();
    } else {
      slot.status = staged.error();
      slot.failure = SourceFailure::kFailed;
    }
    window.slots.push_back(std::move(slot));
    window.used = slab_offset + slice.length;
    return true;
  }
  return slice.encoded() ? place_encoded(window, slice, at) : place_stored(window, slice, at);
}

// Extents of a delta and its base usually alternate in the queue, so a fragment may extend either
// of the last two runs.
size_t RestoreJob::Impl::add_encoded(FillingWindow& window, const Place& at,
                                     uint64_t stored_bytes) const {
  const uint64_t block = context.sources.at(at.source).traits().block_bytes;
  const uint64_t begin = align_down(at.address.offset, block);
  const uint64_t end = align_up(at.address.offset + stored_bytes, block);
  const size_t runs = window.runs.size();
  for (size_t number = runs; number > 0 && number + 2 > runs; --number) {
    RestoreRun& run = window.runs[number - 1];
    const bool joins = run.encoded && run.source == at.source &&
                       run.container == at.address.container && begin >= run.begin &&
                       begin <= run.end && end - run.begin <= limits::kWritePieceBytes;
    if (!joins) continue;
    window.encoded_bytes += std::max(run.end, end) - run.end;
    run.end = std::max(run.end, end);
    return number - 1;
  }
  window.runs.push_back({at.source, at.address.container, begin, end, 0, true});
  window.encoded_bytes += end - begin;
  return runs;
}

bool RestoreJob::Impl::place_encoded(FillingWindow& window, const RestoreSlice& slice,
                                     const Place& at) {
  const uint64_t slab_offset = align_up(window.used, kCopySlotAlignment);
  if (!ckpt::base::range_fits(slab_offset, slice.length, window.bytes.size())) return false;
  const FragmentPlace& stored = slice.fragment->stored;
  window.used = slab_offset + slice.length;
  RestoreSlot slot;
  slot.slice = slice;
  slot.slab_offset = slab_offset;
  slot.place = at;
  slot.encoded = add_encoded(window, at, stored.stored_bytes());
  if (const auto base = context.sources.at(at.source).delta_base(stored)) {
    const uint64_t bytes = base_of(stored).stored_bytes();
    slot.base = RestoreSlot::Base{add_encoded(window, {at.source, *base}, bytes), *base};
  }
  window.slots.push_back(std::move(slot));
  return true;
}

bool RestoreJob::Impl::place_stored(FillingWindow& window, const RestoreSlice& slice,
                                    const Place& at) {
  const uint64_t container = at.address.container;
  const uint64_t block = context.sources.at(at.source).traits().block_bytes;
  const uint64_t begin = align_down(slice.read_begin(at.address), block);
  const uint64_t end = align_up(slice.read_end(at.address), block);
  RestoreRun* last = window.runs.empty() ? nullptr : &window.runs.back();
  // Extends the last run if this range begins at its end, or in its last block: one request less.
  // The run must be the last thing in the slab, so that it can grow.
  const bool joins = last != nullptr && !last->encoded && last->source == at.source &&
                     last->container == container && begin >= last->begin && begin <= last->end &&
                     window.used == last->slab_offset + (last->end - last->begin);
  const uint64_t run_at = joins ? last->slab_offset : align_up(window.used, block);
  const uint64_t run_begin = joins ? last->begin : begin;
  const uint64_t run_end = joins ? std::max(last->end, end) : end;
  if (!ckpt::base::range_fits(run_at, run_end - run_begin, window.bytes.size())) return false;

  if (joins) {
    last->end = run_end;
  } else {
    window.runs.push_back({at.source, container, begin, end, run_at, false});
  }
  window.used = run_at + (run_end - run_begin);
  RestoreSlot slot;
  slot.slice = slice;
  slot.slab_offset = run_at + (slice.read_begin(at.address) - run_begin);
  slot.place = at;
  window.slots.push_back(std::move(slot));
  return true;
}

void RestoreJob::Impl::read_run(FillingWindow& window, size_t number) {
  const RestoreRun run = window.runs[number];
  Source& source = context.sources.at(run.source);
  source.open({run.container, run.begin}, [this, &window, run, number](Result<SourceLease> opened) {
    if (!opened.ok()) {
      read_done(window, run, opened.error(), SourceFailure::kFailed);
      return;
    }
    const uint64_t most = context.sources.at(run.source).traits().read_bytes_max;
    const size_t lease = window.leases.size();
    window.leases.push_back(std::move(opened).value());
    window.pending -= 1;  // the open; its reads follow
    const MutableByteView memory =
        run.encoded ? (window.encoded[number] = AlignedBuffer(run.end - run.begin)).bytes()
                    : window.bytes.subspan(run.slab_offset, run.end - run.begin);
    for (uint64_t at = run.begin; at < run.end; at += most) {
      const uint64_t end = std::min<uint64_t>(run.end, at + most);
      const RestoreRun piece{run.source, run.container, at, end, 0, run.encoded};
      const MutableByteView into = memory.subspan(at - run.begin, end - at);
      window.pending += 1;
      unsubmitted.emplace_back(
          [this, &window, piece, into, lease] { read_piece(window, piece, into, lease); });
    }
    submit_reads();
  });
}

void RestoreJob::Impl::read_piece(FillingWindow& window, const RestoreRun& piece,
                                  MutableByteView into, size_t lease) {
  Source& source = context.sources.at(piece.source);
  const uint64_t number = ++last_read;
  const ReadTicket ticket = source.read(
      window.leases[lease],
      {.from = {piece.container, piece.begin},
       .into = into,
       .buffer = piece.encoded ? std::nullopt : context.staging.slab_buffer(arena, window.slab),
       .on_done = [this, &window, piece, number](const Result<uint64_t>& bytes) {
         reads_in_flight -= 1;
         read_done(window, piece, bytes,
                   forget_cancellable(number) ? SourceFailure::kCancelled : SourceFailure::kFailed);
         submit_reads();
       }});
  if (ticket == 0) return;
  cancellable.emplace(number, CancellableRead{.source = piece.source, .ticket = ticket});
  if (closed) source.cancel(ticket);
}

bool RestoreJob::Impl::forget_cancellable(uint64_t read) {
  const auto entry = cancellable.extract(read);
  return !entry.empty() && entry.mapped().cancelled;
}

void RestoreJob::Impl::tick(std::chrono::nanoseconds now) {
  for (auto& [number, read] : cancellable) {
    Source& source = context.sources.at(read.source);
    const std::chrono::nanoseconds most = source.traits().read_time_max;
    if (!read.since) read.since = now;
    if (read.cancelled || most.count() == 0 || now - *read.since < most) continue;
    read.cancelled = true;
    source.cancel(read.ticket);
  }
}

void RestoreJob::Impl::cancel_all() {
  for (const auto& [number, read] : cancellable) {
    if (!read.cancelled) context.sources.at(read.source).cancel(read.ticket);
  }
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
                                 const Result<uint64_t>& bytes, SourceFailure cause) {
  const bool whole = bytes.ok() && *bytes == piece.end - piece.begin;
  for (RestoreSlot& slot : window.slots) {
    if (!whole) take_failed_read(slot, piece, bytes, cause);
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
