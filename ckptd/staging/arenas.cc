// Lifecycle of arenas: granted, adopted, destroyed.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/staging/arena_quota.h"
#include "ckptd/staging/staging.h"
#include "ckptd/staging/staging_impl.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

uint32_t reserved_of(uint32_t slab_count, uint32_t wanted) {
  // At most half: a small arena is needed for snapshots first.
  return std::min(wanted, slab_count / 2);
}

}  // namespace

uint64_t Staging::Impl::arena_bytes(std::optional<uid_t> of) const {
  uint64_t bytes = 0;
  for (const auto& [id, arena] : arenas) {
    if (!of || arena->uid == *of) bytes += arena->view.layout().arena_bytes();
  }
  return bytes;
}

uint64_t Staging::Impl::user_bytes_max(uid_t uid) const {
  return options.user_bytes_max ? options.user_bytes_max(uid) : UINT64_MAX;
}

// The rest of this user's quota, in bytes. Destroys arenas of dead sessions to get it: the user's
// own for the user's limit, any user's for the total.
uint64_t Staging::Impl::reclaim_quota(uid_t uid, uint64_t bytes) {
  const auto room = [](uint64_t most, uint64_t used) { return most > used ? most - used : 0; };
  const uint64_t of_user_max = user_bytes_max(uid);
  const auto users_room = [&] { return room(of_user_max, arena_bytes(uid)); };
  const auto rest = [&] { return room(options.arena_bytes_total, arena_bytes()); };
  if (of_user_max != UINT64_MAX) {
    destroy_ended([&] { return users_room() >= bytes; }, uid);
  }
  destroy_ended([&] { return rest() >= bytes; }, {});
  return std::min(users_room(), rest());
}

// First arenas without held slabs, then arenas whose held slabs no coming restore may need.
void Staging::Impl::destroy_ended(const std::function<bool()>& enough, std::optional<uid_t> of) {
  const auto go = [&](const std::function<bool(const ArenaState&)>& which) {
    for (auto entry = arenas.begin(); entry != arenas.end() && !enough();) {
      const ArenaId id = entry->first;
      const ArenaState& arena = *entry->second;
      const bool may_go = arena.ended && arena.idle() && (!of || arena.uid == *of);
      if (may_go && which(arena)) destroy(id);
      entry = arenas.upper_bound(id);  // destroy() may have removed other arenas, too
    }
  };
  go([](const ArenaState& arena) { return arena.held.empty(); });
  go([this](const ArenaState& arena) {
    return std::all_of(arena.held.begin(), arena.held.end(),
                       [&](const auto& held) { return evictable(arena.slabs[held.second]); });
  });
}

ArenaState& Staging::Impl::insert(ArenaId id, uid_t uid, ckpt::base::UniqueFd fd,
                                  ckpt::ArenaMapping guard, ckpt::ArenaMapping view,
                                  SlabState initial) {
  const uint32_t reserved = reserved_of(view.layout().slab_count, options.restore_slabs);
  auto arena = std::make_unique<ArenaState>(id, uid, std::move(fd), std::move(guard),
                                            std::move(view), reserved);
  for (SlabRecord& slab : arena->slabs) {
    slab.state = slab.reserved ? SlabState::kFree : initial;
  }
  return *arenas.emplace(id, std::move(arena)).first->second;
}

Staging::Granted Staging::Impl::add(uid_t uid, ckpt::base::UniqueFd fd, ckpt::ArenaMapping guard,
                                    ckpt::ArenaMapping view, SlabState initial) {
  ArenaState& arena =
      insert(next_arena++, uid, std::move(fd), std::move(guard), std::move(view), initial);
  if (options.keeper != nullptr) keep(arena);
  cold.push_back(arena.id);
  warm_next();
  return {.arena = arena.id, .fd = arena.fd.get(), .layout = arena.view.layout()};
}

std::optional<Staging::Granted> Staging::Impl::create_warm(uid_t uid, uint64_t bytes,
                                                           uint64_t slab_bytes) {
  if (bytes / slab_bytes < 2) return std::nullopt;
  const ckpt::ArenaLayout layout{.slab_bytes = slab_bytes,
                                 .slab_count = static_cast<uint32_t>(bytes / slab_bytes)};
  auto memory = take_warm(layout);
  if (!memory) return std::nullopt;
  const uint64_t warm_bytes = memory->warm_bytes;
  Granted granted = add(uid, std::move(memory->fd), std::move(memory->guard),
                        std::move(memory->view), SlabState::kFree);
  granted.warm_bytes = warm_bytes;
  return granted;
}

Result<Staging::Granted> Staging::create(uid_t uid, uint64_t bytes_wanted, uint64_t slab_bytes) {
  if (bytes_wanted == 0) bytes_wanted = impl_->options.session_bytes_default;
  CKPT_TRY(check_session_quota(bytes_wanted, impl_->options.session_bytes_max));
  bytes_wanted = std::min(bytes_wanted, impl_->options.arena_bytes_total);
  if (slab_bytes == 0) slab_bytes = choose_slab_bytes(bytes_wanted);
  CKPT_TRY(ckpt::validate(ckpt::ArenaLayout{.slab_bytes = slab_bytes, .slab_count = 1}));
  CKPT_TRY(check_two_slabs(bytes_wanted, slab_bytes, impl_->options.arena_bytes_total));
  CKPT_TRY(check_user_quota(slab_bytes, uid, impl_->user_bytes_max(uid)));
  const uint64_t room = impl_->reclaim_quota(uid, bytes_wanted);
  if (auto granted = impl_->create_warm(uid, std::min(bytes_wanted, room), slab_bytes)) {
    return *granted;
  }
  const uint64_t available = impl_->available_memory();
  if (available < bytes_wanted) impl_->shrink_pool(0);  // for later callers: freeing is slow
  const uint64_t left = std::min(room, available);
  // Less than requested may be granted, but at least the minimum that makes progress.
  const uint64_t slabs = std::min(bytes_wanted, left) / slab_bytes;
  if (slabs < kArenaSlabsMin) {
    ArenaUse use = impl_->use(uid);
    use.memory_bytes_free = available;
    return no_room_error(
        fmt::format("an arena of {} in slabs of {}", ckpt::base::format_size(bytes_wanted),
                    ckpt::base::format_size(slab_bytes)),
        use);
  }
  const ckpt::ArenaLayout layout{.slab_bytes = slab_bytes,
                                 .slab_count = static_cast<uint32_t>(slabs)};
  CKPT_ASSIGN(auto created, ckpt::ArenaMapping::create(layout));
  CKPT_ASSIGN(auto view, ckpt::ArenaMapping::map(created.fd.get(), layout));
  return impl_->add(uid, std::move(created.fd), std::move(created.mapping), std::move(view),
                    SlabState::kFree);
}

ArenaUse Staging::Impl::use(uid_t uid) const {
  return {.total_bytes = arena_bytes(),
          .total_bytes_max = options.arena_bytes_total,
          .user = uid,
          .user_bytes = arena_bytes(uid),
          .user_bytes_max = user_bytes_max(uid)};
}

// For an arena that exists, but is not yet known to this daemon.
Status Staging::Impl::check_room(uid_t uid, uint64_t arena_bytes_wanted) {
  CKPT_TRY(check_session_quota(arena_bytes_wanted, options.session_bytes_max));
  if (reclaim_quota(uid, arena_bytes_wanted) >= arena_bytes_wanted) return {};
  return no_room_error(fmt::format("the room for an arena of {} that was brought back",
                                   ckpt::base::format_size(arena_bytes_wanted)),
                       use(uid));
}

Result<Staging::Granted> Staging::adopt(uid_t uid, ckpt::base::UniqueFd fd, uint64_t arena_bytes,
                                        uint64_t slab_bytes) {
  if (slab_bytes == 0 || arena_bytes % slab_bytes != 0 || arena_bytes / slab_bytes > UINT32_MAX) {
    return make_error(ErrorCode::kInvalidArgument,
                      "an arena of {} bytes cannot be cut into slabs of {} bytes", arena_bytes,
                      slab_bytes);
  }
  const ckpt::ArenaLayout layout{.slab_bytes = slab_bytes,
                                 .slab_count = static_cast<uint32_t>(arena_bytes / slab_bytes)};
  CKPT_TRY(ckpt::validate(layout));
  CKPT_TRY(ckpt::check_arena_seals(fd.get()));  // before any other operation on a foreign file
  if (ArenaState* parked = impl_->find_parked(fd.get())) {
    return impl_->unpark(*parked, uid, layout);
  }
  CKPT_TRY(impl_->check_room(uid, arena_bytes));
  CKPT_ASSIGN(auto guard, ckpt::ArenaMapping::map(fd.get(), layout));
  CKPT_ASSIGN(auto view, ckpt::ArenaMapping::map(fd.get(), layout));
  return impl_->add(uid, std::move(fd), std::move(guard), std::move(view), SlabState::kLeased);
}

void Staging::session_ended(ArenaId id) {
  ArenaState& arena = impl_->at(id);
  arena.ended = true;
  for (SlabRecord& slab : arena.slabs) {
    if (slab.state == SlabState::kLeased) slab.state = SlabState::kFree;
  }
  impl_->destroy_if_over(id);
}

// Destroys an arena without a trainer once it has only free slabs. Slabs of the memory level stay
// until reclaim_quota() needs the space.
void Staging::Impl::destroy_if_over(ArenaId id) {
  const ArenaState& arena = at(id);
  const bool empty = arena.durable.empty() && arena.held.empty();
  if (arena.ended && arena.idle() && empty) destroy(id);
}

void Staging::Impl::destroy(ArenaId id) {
  ArenaState& arena = at(id);
  while (!arena.durable.empty()) forget_cached(arena, arena.durable.begin()->second);
  std::vector<MemoryLevel::Slab> elsewhere;  // parts of evicted versions in other arenas
  const size_t versions = level.versions();
  while (!arena.held.empty()) {
    const uint32_t slab = arena.held.begin()->second;
    for (const MemoryLevel::Slab& other : level.evict({id, slab})) {
      if (other.arena != id) elsewhere.push_back(other);
    }
    forget_held(arena, slab);
  }
  evicted_versions += versions - level.versions();
  if (arena.ledger) {
    ledger_errors += arena.ledger->write_errors();
    forget(id);
  }
  for (const auto& buffer : arena.buffers) {
    if (buffer.has_value()) disk.unregister_buffer(*buffer);
  }
  arenas.erase(id);
  free_held(elsewhere);
}

}  // namespace ckptd
