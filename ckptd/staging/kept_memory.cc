// Memory that outlives the daemon: arenas and their ledgers, left with a keeper and taken back.
//
// An entry of a ledger is a claim, like a trainer's seal. It passes the same validation as a seal
// (is the slab's table of fragments possible?) and the same check as a write (does every byte match
// its CRC32C, are all bytes between fragments zero?) before any client may read the slab.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <tuple>

#include "ckptd/staging/staging.h"
#include "ckptd/staging/staging_impl.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::LedgerTable;
using ckpt::make_error;

namespace {

constexpr std::string_view kArenaName = "arena-";
constexpr std::string_view kLedgerName = "ledger-";
constexpr uint64_t kOrderMax = uint64_t{1} << 62;

std::string kept_name(std::string_view kind, ArenaId id) { return fmt::format("{}{}", kind, id); }

// The number after `kind`, if it has exactly the form that kept_name() writes.
std::optional<ArenaId> kept_id(std::string_view name, std::string_view kind) {
  if (!name.starts_with(kind)) return std::nullopt;
  const std::string_view digits = name.substr(kind.size());
  ArenaId id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  // The largest number would leave none for the next arena.
  const bool good = error == std::errc{} && end == digits.data() + digits.size() && id > 0 &&
                    id < UINT64_MAX && kept_name(kind, id) == name;
  return good ? std::optional(id) : std::nullopt;
}

}  // namespace

struct Staging::Impl::KeptPair {
  ckpt::base::UniqueFd arena;
  ckpt::base::UniqueFd ledger;
};

struct Staging::Impl::KeptSlab {
  LedgerTable table;
  uint64_t order = 0;
  ckpt::SnapshotKey snapshot;
  StagedSlab slab;
  Status checked;
};

void Staging::Impl::keep(ArenaState& arena) {
  auto ledger = SlabLedger::create({.store = options.store,
                                    .arena = arena.id,
                                    .arena_inode = 0,
                                    .layout = arena.view.layout(),
                                    .uid = arena.uid},
                                   arena.fd.get());
  if (!ledger.ok()) {
    return spdlog::warn("arena {}: it will not survive a restart: {}", arena.id,
                        ledger.error().message);
  }
  arena.ledger.emplace(std::move(ledger).value());
  options.keeper->keep(kept_name(kLedgerName, arena.id), arena.ledger->fd());
  options.keeper->keep(kept_name(kArenaName, arena.id), arena.fd.get());
}

void Staging::Impl::forget(ArenaId arena) {
  options.keeper->forget(kept_name(kArenaName, arena));
  options.keeper->forget(kept_name(kLedgerName, arena));
}

// Forgets descriptors without their counterpart: an arena is useless without its ledger.
std::map<ArenaId, Staging::Impl::KeptPair> Staging::Impl::take_pairs() {
  std::map<ArenaId, KeptPair> pairs;
  for (MemoryKeeper::Kept& kept : options.keeper->take()) {
    if (const auto arena = kept_id(kept.name, kArenaName)) {
      pairs[*arena].arena = std::move(kept.fd);
    } else if (const auto ledger = kept_id(kept.name, kLedgerName)) {
      pairs[*ledger].ledger = std::move(kept.fd);
    } else {
      spdlog::warn("kept memory {}: nothing of this name is ours", kept.name);
      options.keeper->forget(kept.name);
    }
  }
  std::erase_if(pairs, [&](const auto& pair) {
    const bool whole = pair.second.arena.valid() && pair.second.ledger.valid();
    if (!whole) forget(pair.first);
    return !whole;
  });
  return pairs;
}

Staging::RestoredMemory Staging::restore_kept(
    const std::function<bool(const ckpt::SnapshotKey&)>& wanted) {
  RestoredMemory taken;
  if (impl_->options.keeper == nullptr) return taken;
  CKPT_ASSERT_MSG(impl_->arenas.empty(), "memory is taken back before anything else");
  std::vector<Impl::KeptSlab> slabs;
  for (auto& [id, pair] : impl_->take_pairs()) {
    impl_->next_arena = std::max(impl_->next_arena, id + 1);
    auto of_arena = impl_->take_arena(*this, id, std::move(pair), wanted, taken.refused);
    if (of_arena.ok()) {
      std::move(of_arena->begin(), of_arena->end(), std::back_inserter(slabs));
    } else {
      ++taken.refused;
      spdlog::warn("arena {}: what was kept of it is not used: {}", id, of_arena.error().message);
      impl_->forget(id);
    }
  }
  impl_->check_kept(slabs);
  std::erase_if(slabs, [&](const Impl::KeptSlab& kept) {
    if (kept.checked.ok()) return false;
    ++taken.refused;
    spdlog::warn("arena {}: what was kept is not used: {}", kept.slab.arena(),
                 kept.checked.error().message);
    return true;
  });
  for (const Impl::KeptSlab& kept : slabs) taken.bytes += kept.slab.payload_bytes();
  taken.slabs = slabs.size();
  impl_->settle_kept(std::move(slabs));
  std::vector<ArenaId> ids;
  for (const auto& [id, arena] : impl_->arenas) ids.push_back(id);
  for (const ArenaId id : ids) {
    impl_->at(id).parked = true;
    session_ended(id);
  }
  taken.arenas = impl_->arenas.size();
  return taken;
}

// Restores the slabs' states, oldest first. Held slabs of one snapshot are adjacent, and are passed
// to the memory level together.
void Staging::Impl::settle_kept(std::vector<KeptSlab> slabs) {
  std::sort(slabs.begin(), slabs.end(),
            [](const KeptSlab& a, const KeptSlab& b) { return a.order < b.order; });
  for (size_t i = 0; i < slabs.size();) {
    KeptSlab& kept = slabs[i];
    next_order = std::max(next_order, kept.order);
    if (kept.table == LedgerTable::kDurable) {
      kept.slab.mark_writing();
      kept.slab.mark_durable(kept.snapshot);
      ++i;
      continue;
    }
    std::vector<StagedSlab> together;
    for (; i < slabs.size(); ++i) {
      const bool same_snapshot =
          slabs[i].table == LedgerTable::kHeld && slabs[i].snapshot == kept.snapshot;
      if (!same_snapshot) break;
      together.push_back(std::move(slabs[i].slab));
    }
    StagedSlab::mark_held(std::move(together), kept.snapshot);
  }
}

// The arena's ledger entries as sealed slabs. Their bytes are not checked yet.
Result<std::vector<Staging::Impl::KeptSlab>> Staging::Impl::take_arena(
    Staging& staging, ArenaId id, KeptPair pair,
    const std::function<bool(const ckpt::SnapshotKey&)>& wanted, uint64_t& refused) {
  CKPT_ASSIGN(SlabLedger ledger,
              SlabLedger::open(std::move(pair.ledger), options.store, id, pair.arena.get()));
  const ckpt::LedgerHeader header = ledger.header();
  CKPT_TRY(check_room(header.uid, header.layout.arena_bytes()));
  CKPT_ASSIGN(auto guard, ckpt::ArenaMapping::map(pair.arena.get(), header.layout));
  CKPT_ASSIGN(auto view, ckpt::ArenaMapping::map(pair.arena.get(), header.layout));
  ArenaState& arena = insert(id, header.uid, std::move(pair.arena), std::move(guard),
                             std::move(view), SlabState::kLeased);
  arena.ledger.emplace(std::move(ledger));
  const auto refuse = [&refused](const ckpt::Error& error) {
    ++refused;
    spdlog::warn("what was kept is not used: {}", error.message);
  };
  std::vector<KeptSlab> slabs;
  for (SlabLedger::Entry& entry : arena.ledger->entries(refuse)) {
    const ckpt::SnapshotKey snapshot = entry.known.snapshot;
    // Its commit may be deleted, or may never have reached the journal.
    if (!wanted(snapshot)) {
      arena.ledger->clear(entry.table, entry.slab);
      continue;
    }
    // The number must leave room for later ones.
    auto staged = entry.known.sequence >= kOrderMax
                      ? make_error(ErrorCode::kCorrupt, "slab {}: number {} is none of ours",
                                   entry.slab, entry.known.sequence)
                      : staging.seal(id, entry.slab, entry.known.payload_bytes,
                                     std::move(entry.known.fragments));
    if (!staged.ok()) {
      refuse(staged.error());
      arena.ledger->clear(entry.table, entry.slab);
      continue;
    }
    slabs.push_back({.table = entry.table,
                     .order = entry.known.sequence,
                     .snapshot = snapshot,
                     .slab = std::move(staged).value(),
                     .checked = {}});
  }
  return slabs;
}

// Checks all slabs in parallel, on the executor's threads.
void Staging::Impl::check_kept(std::vector<KeptSlab>& slabs) {
  size_t left = slabs.size();
  for (KeptSlab& kept : slabs) {
    executor.run([&kept] { kept.checked = check_payload(kept.slab); }, [&left] { --left; });
  }
  while (left > 0) {
    executor.wait();
    executor.reap();
  }
  for (const KeptSlab& kept : slabs) {
    if (kept.checked.ok()) continue;
    at(kept.slab.arena()).ledger->clear(kept.table, kept.slab.slab());
  }
}

ArenaState* Staging::Impl::find_parked(int fd) {
  struct stat brought {};
  if (::fstat(fd, &brought) != 0) return nullptr;
  for (const auto& [id, arena] : arenas) {
    struct stat ours {};
    if (!arena->parked || ::fstat(arena->fd.get(), &ours) != 0) continue;
    if (ours.st_dev == brought.st_dev && ours.st_ino == brought.st_ino) return arena.get();
  }
  return nullptr;
}

// The trainer has returned. Its claims count for slabs that are neither held nor durable.
Result<Staging::Granted> Staging::Impl::unpark(ArenaState& arena, uid_t uid,
                                               const ckpt::ArenaLayout& layout) {
  const ckpt::ArenaLayout known = arena.view.layout();
  if (arena.uid != uid) {
    return make_error(ErrorCode::kPermissionDenied, "the arena belongs to user {}", arena.uid);
  }
  if (layout.slab_bytes != known.slab_bytes || layout.slab_count != known.slab_count) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the arena has {} slabs of {} bytes, not {} of {}", known.slab_count,
                      known.slab_bytes, layout.slab_count, layout.slab_bytes);
  }
  arena.parked = false;
  arena.ended = false;
  for (SlabRecord& slab : arena.slabs) {
    if (slab.state == SlabState::kFree && !slab.reserved) slab.state = SlabState::kLeased;
  }
  cold.push_back(arena.id);
  warm_next();
  return Granted{.arena = arena.id, .fd = arena.fd.get(), .layout = known};
}

}  // namespace ckptd
