#include "ckptd/staging/arena_quota.h"

#include <algorithm>

#include "formats/base/parse.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::ErrorDetail;
using ckpt::make_error;
using ckpt::base::format_size;

namespace {

uint64_t left_of(uint64_t most, uint64_t used) { return most > used ? most - used : 0; }

}  // namespace

uint64_t choose_slab_bytes(uint64_t arena_bytes) {
  // Two slabs are reserved for restores, and the last slab of a snapshot is partly empty: with
  // fewer slabs, a tenth of the arena and more would be of no use to snapshots.
  constexpr uint64_t kSlabsWanted = 32;
  uint64_t bytes = ckpt::kSlabBytesDefault;
  while (bytes > ckpt::kSlabBytesMin && arena_bytes / bytes < kSlabsWanted) bytes /= 2;
  return bytes;
}

ckpt::Status check_two_slabs(uint64_t arena_bytes, uint64_t slab_bytes, uint64_t total_bytes_max) {
  if (arena_bytes / slab_bytes >= kArenaSlabsMin) return {};
  if (arena_bytes == total_bytes_max) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "ckptd has {} for the arenas of all sessions, which does not hold two slabs of {}, the "
        "least for a session: start ckptd with an --arena of {} or more for each session",
        format_size(arena_bytes), format_size(slab_bytes),
        format_size(kArenaSlabsMin * slab_bytes));
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      "an arena of {} does not hold two slabs of {}, the least for a session: ask for "
      "an arena of {} (arena_bytes of ckpt_open_options), or for smaller slabs "
      "(slab_bytes; 0 lets ckptd choose)",
      format_size(arena_bytes), format_size(slab_bytes), format_size(kArenaSlabsMin * slab_bytes));
}

ckpt::Status check_session_quota(uint64_t arena_bytes, uint64_t session_bytes_max) {
  if (arena_bytes <= session_bytes_max) return {};
  return with_detail(
      make_error(ErrorCode::kInvalidArgument,
                 "an arena of {} was asked for, and a session may have {} at most: ask for less "
                 "(arena_bytes of ckpt_open_options), or start ckptd with a larger "
                 "--session-arena-max",
                 format_size(arena_bytes), format_size(session_bytes_max)),
      ErrorDetail::kNoArenaRoom);
}

ckpt::Status check_user_quota(uint64_t slab_bytes, uid_t user, uint64_t user_bytes_max) {
  if (user_bytes_max / slab_bytes >= kArenaSlabsMin) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "the sessions of user {} may have {} of arenas together, which does not hold "
                    "two slabs of {}, the least for a session: ask for smaller slabs (slab_bytes "
                    "of ckpt_open_options), or start ckptd with a larger --user-arena-max",
                    user, format_size(user_bytes_max), format_size(slab_bytes));
}

namespace {

ckpt::Error describe_no_room(const std::string& asked, const ArenaUse& use) {
  const uint64_t of_total = left_of(use.total_bytes_max, use.total_bytes);
  const uint64_t of_user = left_of(use.user_bytes_max, use.user_bytes);
  const uint64_t left = std::min({of_total, of_user, use.memory_bytes_free});
  if (left == of_user && of_user < of_total) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{} was asked for, and {} can be given: the sessions of user {} have {} of "
                      "arenas and may have {}: end some of them (ckptctl status lists them), or "
                      "start ckptd with a larger --user-arena-max",
                      asked, format_size(left), use.user, format_size(use.user_bytes),
                      format_size(use.user_bytes_max));
  }
  if (left == use.memory_bytes_free && left < of_total) {
    return make_error(
        ErrorCode::kResourceExhausted,
        "{} was asked for, and {} can be given: this machine has no more free memory, "
        "though ckptd may use {} of arenas and uses {}: free memory, or ask for less "
        "(arena_bytes of ckpt_open_options)",
        asked, format_size(left), format_size(use.total_bytes_max), format_size(use.total_bytes));
  }
  return make_error(ErrorCode::kResourceExhausted,
                    "{} was asked for, and {} can be given: ckptd has {} for the arenas of all "
                    "sessions, of which {} are in use: start ckptd with an --arena that has room "
                    "for all sessions together, or end some of them (ckptctl status lists them)",
                    asked, format_size(left), format_size(use.total_bytes_max),
                    format_size(use.total_bytes));
}

}  // namespace

ckpt::Error no_room_error(const std::string& asked, const ArenaUse& use) {
  return with_detail(describe_no_room(asked, use), ErrorDetail::kNoArenaRoom);
}

ckpt::Error snapshot_too_large(std::string_view what, uint64_t slabs_wanted,
                               uint32_t slabs_leasable, const ckpt::ArenaLayout& arena) {
  const uint64_t reserved = arena.slab_count - std::min(arena.slab_count, slabs_leasable);
  return make_error(ErrorCode::kResourceExhausted,
                    "{} needs {} slabs of {} at once, and its arena of {} has {} for snapshots ({} "
                    "are for restores): open the session with an arena of {} or more (arena_bytes "
                    "of ckpt_open_options; where it says nothing, --session-arena of "
                    "ckptd), or let the snapshot stream",
                    what, slabs_wanted, format_size(arena.slab_bytes),
                    format_size(arena.arena_bytes()), slabs_leasable, reserved,
                    format_size((slabs_wanted + reserved) * arena.slab_bytes));
}

}  // namespace ckptd
