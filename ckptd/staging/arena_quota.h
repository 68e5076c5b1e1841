// Arena quotas: why a session does not get the arena that it asks for, and what to change. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/arena.h"
#include "formats/base/result.h"

namespace ckptd {

// The least that a session works with.
inline constexpr uint64_t kArenaSlabsMin = 2;

// The size of slabs for a session that leaves it to ckptd: the default, or less where an arena of
// `arena_bytes` would hold fewer than eight of that size.
uint64_t choose_slab_bytes(uint64_t arena_bytes);

// kInvalidArgument: two slabs do not fit into this arena, whoever asks. An arena as large as all
// that ckptd may use (`total_bytes_max`) cannot grow: then ckptd needs more memory.
ckpt::Status check_two_slabs(uint64_t arena_bytes, uint64_t slab_bytes, uint64_t total_bytes_max);
// kInvalidArgument: more than session_arena_max. No wait changes that.
ckpt::Status check_session_quota(uint64_t arena_bytes, uint64_t session_bytes_max);
// kInvalidArgument: two slabs are more than the user's sessions may have together.
ckpt::Status check_user_quota(uint64_t slab_bytes, uid_t user, uint64_t user_bytes_max);

// What is in use, and may be. No bound is UINT64_MAX.
struct ArenaUse {
  uint64_t total_bytes = 0;      // in use by all sessions
  uint64_t total_bytes_max = 0;  // `arena`
  uid_t user = 0;
  uint64_t user_bytes = 0;
  uint64_t user_bytes_max = UINT64_MAX;     // `user_arena_max`
  uint64_t memory_bytes_free = UINT64_MAX;  // of the machine
};
// kResourceExhausted: names the bound that leaves least, and how to change it. `asked` begins the
// sentence: "a new arena of 64.0 MiB".
ckpt::Error no_room_error(const std::string& asked, const ArenaUse& use);

// kResourceExhausted: a snapshot needs more slabs at once than its arena has. `what` begins the
// sentence: "this rank's part of the snapshot".
ckpt::Error snapshot_too_large(std::string_view what, uint64_t slabs_wanted,
                               uint32_t slabs_leasable, const ckpt::ArenaLayout& arena);

}  // namespace ckptd
