// Filling slabs: the copy that the trainer waits for.
#include <algorithm>
#include <cstring>
#include <utility>

#include "client/src/snapshot.h"
#include "formats/base/assert.h"
#include "formats/base/stream_copy.h"
#include "formats/wire/snapshot_timings.h"

namespace ckpt::lib {
namespace {

void zero(MutableByteView bytes) {
  if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
}

}  // namespace

void Snapshot::take_slabs(const fb::SlabsLeasedT& leased) {
  if (leased.step != begin_.step || leased.attempt != begin_.attempt) return;
  const uint32_t slab_count = session_->arena().mapping()->layout().slab_count;
  for (const uint32_t slab : leased.slabs) {
    if (slab >= slab_count) {
      send_abort("the daemon leased a slab that is not in the arena");
      return fail(make_error(ErrorCode::kCorrupt, "{}: the daemon leased slab {} of {}", name(),
                             slab, slab_count));
    }
    session_->forget_seal(slab);
    free_slabs_.push_back(slab);
    if (slabs_expected_ > 0) --slabs_expected_;
  }
}

void Snapshot::forget_seal(uint32_t slab) {
  const size_t forgotten =
      std::erase_if(seals_, [slab](const Seal& seal) { return seal.slab == slab; });
  if (forgotten > 0) seals_complete_ = false;
}

Status Snapshot::acquire_slab(std::optional<Filling>& filling, const Deadline& deadline) {
  const Timed waiting(info_.wait_ns);
  const Timed slab_wait(info_.timings.slab_wait_ns);
  const Clock::time_point asked = Clock::now();
  auto found = free_slabs_.end();
  for (;;) {
    CKPT_TRY(check_open());
    found = std::find_if(free_slabs_.begin(), free_slabs_.end(), [this](uint32_t slab) {
      const SessionArena& arena = session_->arena();
      return !arena.is_lent(arena.mapping()->slab(slab).data());
    });
    if (found != free_slabs_.end()) break;
    if (session_->interrupted()) {
      return make_error(ErrorCode::kAborted, "{}: waiting for a free slab: interrupted", name());
    }
    if (deadline.expired()) {
      return make_error(session_->ready() ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable,
                        "{}: no free slab within {} ms{}", name(), ns_since(asked) / 1'000'000,
                        session_->ready() ? "" : "; not connected to ckptd");
    }
    // A free slab that is still lent will be returned: request no other.
    if (slabs_expected_ == 0 && free_slabs_.empty() && request_slabs(1)) {
      slabs_to_request_ -= std::min(slabs_to_request_, 1u);
    }
    session_->pump(deadline);
  }
  const uint32_t slab = *found;
  free_slabs_.erase(found);
  filling.emplace(
      Filling{slab, SlabLayout(session_->arena().mapping()->layout().slab_bytes), {}, /*lent=*/0});
  request_ahead();
  return ok_status();
}

// False if there is no daemon to ask.
bool Snapshot::request_slabs(uint32_t count) {
  if (!session_->ready()) return false;
  fb::LeaseSlabsT body;
  body.step = begin_.step;
  body.attempt = begin_.attempt;
  body.count = count;
  uint64_t request = 0;
  if (!session_->post(std::move(body), &request)) return false;
  requests_.push_back(request);
  slabs_expected_ += count;
  return true;
}

// A streaming snapshot requests its next slabs while it fills one: it then waits for the disk, and
// not for the answer as well.
void Snapshot::request_ahead() {
  const auto coming = static_cast<uint32_t>(free_slabs_.size()) + slabs_expected_;
  const uint32_t wanted = std::min(kSlabsAhead, session_->arena().snapshot_slabs());
  if (coming >= wanted) return;
  const uint32_t count = std::min(wanted - coming, slabs_to_request_);
  if (count > 0 && request_slabs(count)) slabs_to_request_ -= count;
}

// The declared fragment that contains [offset, offset + length) as its next bytes.
Result<Snapshot::Share*> Snapshot::find_share(UnitId unit, uint64_t offset, uint64_t length) {
  const auto describe = [&] { return fmt::format("{} {}", name(), label(unit)); };
  auto after = std::upper_bound(shares_.begin(), shares_.end(), std::pair(unit, offset),
                                [](const std::pair<UnitId, uint64_t>& at, const Share& share) {
                                  return at < std::pair(share.range.unit, share.range.offset);
                                });
  if (after == shares_.begin() || std::prev(after)->range.unit != unit ||
      !base::range_fits(offset - std::prev(after)->range.offset, length,
                        std::prev(after)->range.length)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: bytes [{}, {}) are not in a fragment of this rank", describe(), offset,
                      offset + length);
  }
  Share& share = *std::prev(after);
  const uint64_t expected = share.range.offset + share.written;
  if (offset != expected) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: written at {}, but the fragment's next byte is {}", describe(), offset,
                      expected);
  }
  return &share;
}

Status Snapshot::write(UnitId unit, uint64_t offset, ByteView data) {
  const Writing writing(info_);
  CKPT_TRY(check_open());
  if (ended_) return make_error(ErrorCode::kFailedPrecondition, "{}: already ended", name());
  if (data.empty()) return ok_status();
  CKPT_ASSIGN(Share * share, find_share(unit, offset, data.size()));
  const Deadline until = deadline();
  std::optional<Filling>& filling = filling_for(*share);
  while (!data.empty()) {
    if (!filling) CKPT_TRY(acquire_slab(filling, until));
    uint64_t place = 0;
    uint64_t room = 0;
    if (!find_room(*filling, *share, &place, &room)) {
      close_slab(filling);
      continue;
    }
    const uint64_t length = std::min<uint64_t>(room, data.size());
    append(*filling, *share, place, data.first(length));
    data = data.subspan(length);
  }
  return ok_status();
}

// True if the share's next byte follows, in unit and slab, the last one written.
bool Snapshot::continues_last(const Filling& filling, const Share& share) {
  if (filling.fragments.empty() || filling.lent > 0) return false;
  const fb::SealedFragment& last = filling.fragments.back();
  return last.unit() == share.range.unit &&
         last.offset() + last.length() == share.range.offset + share.written && share.written > 0;
}

// Finds the place of the share's next byte and how many bytes fit; false if the slab is full.
bool Snapshot::find_room(const Filling& filling, const Share& share, uint64_t* place,
                         uint64_t* room) {
  const SlabLayout& layout = filling.layout;
  if (continues_last(filling, share) && layout.rest() > 0) {
    *place = layout.filled();
    *room = layout.rest();
    return true;
  }
  const auto found = layout.place(share.range.length - share.written);
  if (!found) return false;
  *place = found->offset;
  *room = found->length;
  return true;
}

void Snapshot::append(Filling& filling, Share& share, uint64_t place, ByteView data) {
  const MutableByteView slab = session_->arena().warm(filling.slab);
  SlabLayout& layout = filling.layout;
  if (continues_last(filling, share) && place == layout.filled()) {
    fb::SealedFragment& last = filling.fragments.back();
    const uint32_t crc = base::stream_crc32c(slab.subspan(place, data.size()), data, last.crc32c());
    last = fb::SealedFragment(last.unit(), crc, last.offset(), last.length() + data.size(),
                              last.payload_offset());
    layout.extend(data.size());
  } else {
    zero(slab.subspan(layout.filled(), place - layout.filled()));
    const uint32_t crc = base::stream_crc32c(slab.subspan(place, data.size()), data);
    filling.fragments.emplace_back(share.range.unit, crc, share.range.offset + share.written,
                                   data.size(), place);
    layout.fill(place, data.size());
  }
  share.written += data.size();
  info_.bytes += data.size();
}

// Closes the slab to new bytes. Seals it once none of its places is being filled.
void Snapshot::close_slab(std::optional<Filling>& filling) {
  Filling full = *std::exchange(filling, std::nullopt);
  if (full.lent > 0) {
    closed_.push_back(std::move(full));
  } else {
    seal(std::move(full));
  }
}

// Hands the slab over to the daemon. Without a daemon, reopen() tells the next one.
void Snapshot::seal(Filling filling) {
  CKPT_ASSERT_MSG(filling.lent == 0, "a slab is sealed while a place in it is being filled");
  const Clock::time_point start = Clock::now();
  const uint64_t filled = filling.layout.filled();
  const MutableByteView slab = session_->arena().warm(filling.slab);
  zero(slab.subspan(filled, base::align_up(filled, kBlockBytes) - filled));
  seals_.push_back({filling.slab, filled, std::move(filling.fragments)});
  info_.timings.seal_ns += ns_since(start);
  // The message carries the time so far, so ckptd does not know the time of the last message.
  const Timed sending(info_.timings.seal_ns);
  post_seal(seals_.back());
}

void Snapshot::post_seal(const Seal& seal) {
  fb::SealSlabT body;
  body.epoch = begin_.epoch;
  body.step = begin_.step;
  body.attempt = begin_.attempt;
  body.slab = seal.slab;
  body.payload_bytes = seal.payload_bytes;
  body.fragments = seal.fragments;
  body.timings = wire::to_fb(info_.timings);
  uint64_t request = 0;
  if (session_->post(std::move(body), &request)) requests_.push_back(request);
}

Status Snapshot::end() {
  const Timed stall(info_.stall_ns);
  CKPT_TRY(check_open());
  if (ended_) return ok_status();
  for (const Share& share : shares_) {
    if (share.written == share.range.length) continue;
    return make_error(ErrorCode::kFailedPrecondition,
                      "{} {}: bytes [{}, {}) of this rank were not written", name(),
                      label(share.range.unit), share.range.offset + share.written,
                      share.range.offset + share.range.length);
  }
  if (!lent_.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: {} places are still being filled",
                      name(), lent_.size());
  }
  for (auto& filling : filling_) {
    if (filling) close_slab(filling);
  }
  ended_ = true;
  const Timed waiting(info_.wait_ns);
  const Timed sealing(info_.timings.seal_ns);
  session_->drain_sends(deadline());
  return ok_status();
}

}  // namespace ckpt::lib
