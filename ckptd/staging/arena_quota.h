// Arena quotas: why a session cannot get the requested arena, and what to change. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/arena.h"
#include "formats/base/result.h"

namespace ckptd {

// Minimum number of slabs for a session to make progress.
inline constexpr uint64_t kArenaSlabsMin = 2;

// The slab size for a session that does not choose one: the default, or less if an arena of
// `arena_bytes` would hold fewer than 32 slabs of that size.
uint64_t choose_slab_bytes(uint64_t arena_bytes);

// kInvalidArgument: two slabs do not fit into this arena, for any user. An arena with all of
// ckptd's memory (`total_bytes_max`) cannot grow: then ckptd needs more memory.
ckpt::Status check_two_slabs(uint64_t arena_bytes, uint64_t slab_bytes, uint64_t total_bytes_max);
// kInvalidArgument: more than session_arena_max. Waiting does not help.
ckpt::Status check_session_quota(uint64_t arena_bytes, uint64_t session_bytes_max);
// kInvalidArgument: two slabs exceed the quota of all the user's sessions together.
ckpt::Status check_user_quota(uint64_t slab_bytes, uid_t user, uint64_t user_bytes_max);

// Memory in use, and its limits. UINT64_MAX: no limit.
struct ArenaUse {
  uint64_t total_bytes = 0;      // in use by all sessions
  uint64_t total_bytes_max = 0;  // `arena`
  uid_t user = 0;
  uint64_t user_bytes = 0;
  uint64_t user_bytes_max = UINT64_MAX;     // `user_arena_max`
  uint64_t memory_bytes_free = UINT64_MAX;  // of the machine
};
// kResourceExhausted: names the tightest limit, and how to change it. `asked` begins the sentence:
// "a new arena of 64.0 MiB".
ckpt::Error no_room_error(const std::string& asked, const ArenaUse& use);

// kResourceExhausted: a snapshot needs more slabs at once than its arena has. `what` begins the
// sentence: "this rank's part of the snapshot".
ckpt::Error snapshot_too_large(std::string_view what, uint64_t slabs_wanted,
                               uint32_t slabs_leasable, const ckpt::ArenaLayout& arena);

}  // namespace ckptd
