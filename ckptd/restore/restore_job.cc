// RestoreJob: the queue, the result of each fragment, and the notes for the client.
#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/restore/memory_view.h"
#include "ckptd/restore/restore.h"
#include "ckptd/restore/restore_impl.h"
#include "formats/base/crc32c.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

bool same_fragment(const RestoreFragment& fragment, const PlannedRead& read) {
  return fragment.unit == read.part.unit && fragment.place == read.place &&
         fragment.snapshot == read.snapshot && fragment.stored == read.stored;
}

uint32_t combined_crc(const RestoreFragment& fragment, uint64_t slice_bytes) {
  uint32_t crc = 0;
  uint64_t left = fragment.stored.length;
  for (const uint32_t slice : fragment.slice_crcs) {
    const uint64_t length = std::min(left, slice_bytes);
    crc = ckpt::base::crc32c_combine(crc, slice, length);
    left -= length;
  }
  return crc;
}

}  // namespace

RestoreJob::Impl::Impl(Context with, ArenaId of_arena, uid_t of_uid, RestoreRequest of_request,
                       std::function<void(Result<Window>)> callback)
    : context(std::move(with)),
      arena(of_arena),
      uid(of_uid),
      request(std::move(of_request)),
      on_window(std::move(callback)) {
  oracle = restore_oracle(context, uid, request);
}

void RestoreJob::Impl::hold(const std::vector<PlannedRead>& reads) {
  for (const PlannedRead& read : reads) {
    auto held = context.sources.at(read.place.source)
                    .hold({uid, read.snapshot, read.part.unit, read.stored});
    if (held) holds.push_back(std::move(held));
  }
}

RestoreJob::RestoreJob(Context context, ArenaId arena, uid_t uid, RestoreRequest request,
                       RestorePlan plan, std::function<void(Result<Window>)> on_window)
    : impl_(std::make_unique<Impl>(std::move(context), arena, uid, std::move(request),
                                   std::move(on_window))) {
  CKPT_ASSERT(plan.versions.size() == impl_->request.wants.size());
  for (size_t want = 0; want < plan.versions.size(); ++want) {
    impl_->versions.plan(impl_->request.wants[want].unit, plan.versions[want].snapshot);
  }
  // A slice that begins and ends inside a block must still fit into a slab.
  const uint64_t slab_bytes = impl_->context.staging.layout(arena).slab_bytes;
  CKPT_ASSERT(slab_bytes > 2 * ckpt::kBlockBytes);
  impl_->slice_bytes_max = slab_bytes - 2 * ckpt::kBlockBytes;
  impl_->hold(plan.reads);
  impl_->add(plan.reads);
}

RestoreJob::~RestoreJob() {
  CKPT_ASSERT_MSG(impl_->closed && !impl_->busy(), "a restore was not closed");
}

void RestoreJob::locate(uint64_t bytes_max) {
  // Slices the planned fragments again: fragments that the client reads are not sliced.
  std::deque<RestoreSlice> planned;
  planned.swap(impl_->queue);
  impl_->locate_bytes_max = bytes_max;
  for (const RestoreSlice& slice : planned) {
    if (slice.index == 0) impl_->add_slices(slice.fragment);
  }
}

uint64_t RestoreJob::located_read(const LocatedAnswer& answer) {
  return impl_->located_read(answer);
}

void RestoreJob::start() { impl_->pump(); }
void RestoreJob::pump() { impl_->pump(); }
void RestoreJob::tick(std::chrono::nanoseconds now) { impl_->tick(now); }

void RestoreJob::release(uint32_t slab) {
  if (impl_->out.erase(slab) == 0) return;
  impl_->context.staging.release_restore_slab(impl_->arena, slab);
  impl_->pump();
}

void RestoreJob::close(std::function<void()> on_closed) {
  CKPT_ASSERT_MSG(!impl_->closed, "a restore is closed twice");
  impl_->closed = true;
  impl_->on_closed = std::move(on_closed);
  impl_->queue.clear();
  impl_->located.clear();
  for (const uint32_t slab : impl_->out) {
    impl_->context.staging.release_restore_slab(impl_->arena, slab);
  }
  impl_->out.clear();
  impl_->holds.clear();
  impl_->cancel_all();
  impl_->defer([] {});
}

void RestoreJob::Impl::defer(std::function<void()> then) {
  deferred += 1;
  context.executor.run([] {},
                       [this, then = std::move(then)] {
                         deferred -= 1;
                         then();
                         finish_close();
                       });
}

void RestoreJob::Impl::finish_close() {
  if (!closed || busy() || !on_closed) return;
  const auto callback = std::move(on_closed);
  on_closed = nullptr;
  callback();  // may destroy this job
}

// ---- the queue ---------------------------------------------------------------------------------

void RestoreJob::Impl::add(const std::vector<PlannedRead>& reads) {
  std::shared_ptr<RestoreFragment> fragment;
  for (const PlannedRead& read : reads) {
    // Two wants of one fragment are adjacent in a plan.
    if (!fragment || !same_fragment(*fragment, read)) {
      if (fragment) add_slices(fragment);
      fragment = std::make_shared<RestoreFragment>();
      fragment->unit = read.part.unit;
      fragment->place = read.place;
      fragment->snapshot = read.snapshot;
      fragment->stored = read.stored;
    }
    fragment->parts.push_back({read.want, read.part});
  }
  if (fragment) add_slices(fragment);
}

void RestoreJob::Impl::add_slices(const std::shared_ptr<RestoreFragment>& fragment) {
  const uint64_t length = fragment->stored.length;
  const uint64_t most = to_locate(*fragment) ? length : slice_bytes_max;
  size_t index = 0;
  for (uint64_t offset = 0; offset < length; offset += most, ++index) {
    queue.push_back({fragment, index, offset, std::min(most, length - offset)});
  }
  fragment->slice_crcs.resize(index);
  fragment->slices_left = index;
}

void RestoreJob::Impl::pump() {
  if (over || closed) return;
  while (!queue.empty()) {
    if (to_locate(*queue.front().fragment)) {
      if (locating || located.size() >= limits::kLocatedWindowsMax) break;
      locate_next();
      continue;
    }
    const auto slab = context.staging.take_restore_slab(arena);
    if (!slab) break;
    fill(*slab);
  }
  finish_if_done();
}

void RestoreJob::Impl::finish_if_done() {
  if (!nothing_left() || finishing) return;
  finishing = true;
  defer([this] {
    if (over || closed) return;
    over = true;
    Window window;
    window.last = true;
    deliver(std::move(window));
  });
}

// ---- results of a window -----------------------------------------------------------------------

bool RestoreJob::Impl::stale(const RestoreFragment& fragment) const {
  return fragment.dropped || !versions.is_served_from(fragment.unit, fragment.snapshot);
}

void RestoreJob::Impl::checked(FillingWindow& window) {
  Window result;
  result.slab = window.slab;
  if (!over && !closed) {
    for (RestoreSlot& slot : window.slots) settle(slot, result.pieces);
    // A unit that fell back in the middle of this window is delivered again as a whole.
    std::map<ckpt::UnitId, bool> kept;
    for (const RestoreSlot& slot : window.slots) {
      const auto& fragment = *slot.slice.fragment;
      kept[fragment.unit] |= versions.is_served_from(fragment.unit, fragment.snapshot);
    }
    std::erase_if(result.pieces,
                  [&](const WindowPiece& piece) { return !kept.at(piece.range.unit); });
  }
  filling.remove_if([&](const FillingWindow& entry) { return &entry == &window; });

  const bool failed = failure.has_value() && !over;
  if (over || closed || failed || result.pieces.empty()) {
    context.staging.release_restore_slab(arena, result.slab);
    result.slab = kNoSlab;
  }
  if (closed) {
    finish_close();
    return;
  }
  if (over) return;
  if (failed) {
    over = true;
    queue.clear();
    on_window(*failure);
    return;
  }
  result.last = nothing_left();
  over = result.last;
  if (over || result.slab != kNoSlab) deliver(std::move(result));
  pump();
}

void RestoreJob::Impl::settle(RestoreSlot& slot, std::vector<WindowPiece>& pieces) {
  RestoreFragment& fragment = *slot.slice.fragment;
  if (failure || stale(fragment)) return;
  if (!slot.status.ok()) {
    context.sources.at(slot.place.source).count(slot.failure);
    from_next_source(fragment, slot.place, slot.status.error(),
                     slot.base_failed ? std::optional(slot.base->at) : std::nullopt);
    return;
  }
  fragment.slice_crcs[slot.slice.index] = slot.crc32c;
  fragment.slices_left -= 1;
  if (fragment.slices_left == 0 && fragment.slice_crcs.size() > 1 &&
      !crc_holds(fragment, combined_crc(fragment, slice_bytes_max))) {
    context.sources.at(fragment.place.source).count(SourceFailure::kWrongBytes);
    from_next_source(fragment, fragment.place, make_error(ErrorCode::kCorrupt, kMismatch));
    return;
  }
  pieces.insert(pieces.end(), slot.pieces.begin(), slot.pieces.end());
}

void RestoreJob::Impl::from_next_source(RestoreFragment& fragment, const Place& failed,
                                        const ckpt::Error& error,
                                        const std::optional<Address>& failed_base) {
  const bool damage = is_data_loss(error);
  if (!damage) fragment.refused = error.code;
  const Source& source = context.sources.at(failed.source);
  if (const auto next = context.sources.after(failed.source, name_of(fragment))) {
    add_slices(again_from(fragment, *next));
    note_source(fragment,
                fmt::format("{} instead of {}: {}", context.sources.at(next->source).name(),
                            source.name(), error.message));
    return;
  }
  const Place place{failed.source, failed_base.value_or(failed.address)};
  const std::string reason = fmt::format("{}: {}{}", source.describe(place.address),
                                         failed_base ? "base of a delta: " : "", error.message);
  if (!fragment.refused) return from_older_version(fragment, place, reason);
  // The bytes may be intact: an older version must not replace them without need.
  failure =
      make_error(*fragment.refused, "run {} step {} unit {}: could not be read: {}",
                 oracle.run_name, fragment.snapshot.step, oracle.unit_name(fragment.unit), reason);
}

std::shared_ptr<RestoreFragment> RestoreJob::Impl::again_from(RestoreFragment& fragment,
                                                              const Place& place) {
  auto again = std::make_shared<RestoreFragment>(fragment);
  again->place = place;
  fragment.dropped = true;
  return again;
}

void RestoreJob::Impl::note_source(const RestoreFragment& fragment,
                                   const std::string& source_text) {
  std::vector<size_t> wants;
  wants.reserve(fragment.parts.size());
  for (const RestoreFragment::Part& part : fragment.parts) wants.push_back(part.want);
  versions.change_source(fragment.unit, fragment.snapshot, wants, [&] {
    return fmt::format("unit {}: {}", oracle.unit_name(fragment.unit), source_text);
  });
}

void RestoreJob::Impl::from_older_version(const RestoreFragment& fragment, const Place& failed,
                                          const std::string& reason) {
  if (context.on_damage) context.on_damage(fragment.snapshot);
  const ServedVersions::Failures& failures = versions.add_failure(fragment.unit, failed, reason);
  const auto plan = read_whole(context.catalog, context.heal_catalog, [&] {
    return plan_fallback(request, oracle, fragment.unit, fragment.snapshot, failures.reasons(),
                         failures.places);
  });
  if (!plan.ok()) {
    failure = plan.error();
    return;
  }
  versions.fall_back(fragment.unit, *plan);
  add(plan->reads);
}

void RestoreJob::Impl::deliver(Window window) {
  if (window.slab != kNoSlab) out.insert(window.slab);
  window.notes = versions.take_notes();
  if (window.last) holds.clear();
  on_window(std::move(window));
}

}  // namespace ckptd
