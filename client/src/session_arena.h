// SessionArena: the arena of one session, as mapped by this process.
//
// A new daemon may refuse the arena of its predecessor and send another. Memory that the caller
// still uses must stay mapped: a pinned mapping is retired, and unmapped with the session.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "formats/arena.h"

namespace ckpt::lib {

class SessionArena {
 public:
  // Maps `fd` so that a forked child (a data loader) can neither write into the arena nor pays for
  // its page tables.
  static Result<ArenaMapping> map(int fd, const ArenaLayout& layout);

  // The mapping; null before the first Welcome and in a control session without an arena.
  const ArenaMapping* mapping() const { return mapping_ ? &*mapping_ : nullptr; }
  // Descriptor for the daemon that takes the arena back.
  int fd() const { return fd_.get(); }
  // Number of first slabs whose memory the daemon has prepared.
  uint32_t slabs_warm() const { return slabs_warm_; }

  // Number of slabs that snapshots can have at once. set_snapshot_slabs(0): an older daemon, which
  // does not say.
  void set_snapshot_slabs(uint32_t count) { snapshot_slabs_ = count; }
  uint32_t snapshot_slabs() const;

  // Makes `mapping` the arena. Keeps the previous mapping if it is pinned.
  void replace(ArenaMapping mapping, base::UniqueFd fd, uint64_t warm_bytes);
  // Returns mapping() and keeps it until the session ends.
  const ArenaMapping* pin();
  // The slab's bytes, with this process's page table entries filled: otherwise the first copy into
  // a slab would pay a page fault for every 4 KiB.
  MutableByteView warm(uint32_t slab);
  // For a forked child: forgets all mappings without unmapping them. The arena is not mapped in the
  // child, which may use those addresses for other mappings.
  void forget_in_child();

  // Counts writers of the slab that begins at `slab`: lend() adds one, end_lending() removes one
  // (snapshot_places.cc). A slab with a writer must not be refilled.
  void lend(const std::byte* slab) { ++lent_[slab]; }
  void end_lending(const std::byte* slab) {
    const auto found = lent_.find(slab);
    if (found != lent_.end() && --found->second == 0) lent_.erase(found);
  }
  bool is_lent(const std::byte* slab) const { return lent_.contains(slab); }

 private:
  std::optional<ArenaMapping> mapping_;
  base::UniqueFd fd_;
  bool pinned_ = false;
  uint32_t slabs_warm_ = 0;
  uint32_t snapshot_slabs_ = 0;
  std::vector<bool> slab_populated_;   // this process has page table entries for the slab
  std::vector<ArenaMapping> retired_;  // pinned, then refused by a new daemon
  std::map<const std::byte*, size_t> lent_;
};

}  // namespace ckpt::lib
