// Places: ranges of the arena that other code fills, mainly a GPU's copy engine.
//
// A place is lent until filled() returns it, even if the snapshot fails: a copy in progress cannot
// be cancelled. A slab with lent places is not sealed. If the daemon leases it again, no other code
// fills it.
#include <algorithm>
#include <cstring>

#include "client/src/snapshot.h"

namespace ckpt::lib {

Result<Place> Snapshot::reserve(UnitId unit, uint64_t offset, uint64_t length,
                                uint32_t timeout_ms) {
  const Timed stall(info_.stall_ns);
  CKPT_TRY(check_open());
  if (ended_) return make_error(ErrorCode::kFailedPrecondition, "{}: already ended", name());
  CKPT_ASSIGN(Share * share, find_share(unit, offset, length));
  if (length == 0) {
    return make_error(ErrorCode::kInvalidArgument, "{}: a place of no bytes", name());
  }
  const Deadline until = timeout_ms == 0 ? deadline() : Deadline::after_ms(timeout_ms);
  std::optional<Filling>& filling = filling_for(*share);
  for (;;) {
    if (!filling) CKPT_TRY(acquire_slab(filling, until));
    // Always a fragment of its own, even if it continues another: its CRC is not known yet.
    if (const auto place = filling->layout.place(share->range.length - share->written)) {
      return lend(*filling, *share, place->offset, std::min(place->length, length));
    }
    close_slab(filling);
  }
}

Place Snapshot::lend(Filling& filling, Share& share, uint64_t at, uint64_t length) {
  if (lent_.empty()) lending_since_ = Clock::now();
  const MutableByteView slab = session_->arena().warm(filling.slab);
  const uint64_t filled = filling.layout.filled();
  if (at > filled) std::memset(slab.data() + filled, 0, at - filled);
  filling.layout.fill(at, length);
  filling.fragments.emplace_back(share.range.unit, 0, share.range.offset + share.written, length,
                                 at);
  ++filling.lent;
  const uint64_t id = next_place_++;
  lent_[id] = {
      .slab = filling.slab, .memory = slab.data(), .fragment = filling.fragments.size() - 1};
  session_->arena().pin();  // the mapping stays, even with a new daemon
  session_->arena().lend(slab.data());
  share.written += length;
  info_.bytes += length;
  return {.memory = slab.subspan(at, length), .id = id};
}

Status Snapshot::filled(uint64_t id, uint32_t crc32c) {
  const Timed stall(info_.stall_ns);
  const auto found = lent_.find(id);
  if (found == lent_.end()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: place {} is not lent", name(), id);
  }
  const Lent lent = found->second;
  lent_.erase(found);
  if (lent_.empty()) info_.timings.copy_ns += ns_since(lending_since_);
  if (session_ != nullptr) session_->arena().end_lending(lent.memory);
  CKPT_TRY(check_open());
  Filling& filling = filling_of(lent.slab);
  fb::SealedFragment& fragment = filling.fragments[lent.fragment];
  fragment = fb::SealedFragment(fragment.unit(), crc32c, fragment.offset(), fragment.length(),
                                fragment.payload_offset());
  if (--filling.lent > 0 || is_open(filling)) return ok_status();
  seal(std::move(filling));
  std::erase_if(closed_, [&](const Filling& one) { return one.slab == lent.slab; });
  return ok_status();
}

Snapshot::Filling& Snapshot::filling_of(uint32_t slab) {
  for (auto& filling : filling_) {
    if (filling && filling->slab == slab) return *filling;
  }
  const auto found = std::find_if(closed_.begin(), closed_.end(),
                                  [slab](const Filling& one) { return one.slab == slab; });
  CKPT_ASSERT(found != closed_.end());
  return *found;
}

bool Snapshot::is_open(const Filling& filling) const {
  return std::any_of(filling_.begin(), filling_.end(),
                     [&](const auto& one) { return one && &filling == &*one; });
}

}  // namespace ckpt::lib
