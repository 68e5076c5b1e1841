// Space of a snapshot, computed when a member begins it: upper bounds, reserved before the first
// byte is written. Precondition of all: the message has passed BeginChecks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// Disk space of a member's part: its bytes, a block of alignment for each fragment, and a header
// for each slab. nullopt: the fragments add up to more than 64 bits hold.
std::optional<uint64_t> disk_bytes(const ckpt::fb::BeginSnapshotT& message);
// The same for the parts of all `members` together, computed from one member's message: its list of
// units is that of the whole snapshot. Of blobs, only this member's count. 0: unknown.
uint64_t snapshot_disk_bytes(const ckpt::fb::BeginSnapshotT& message,
                             const std::vector<ckpt::UnitSpec>& units, uint32_t members,
                             uint64_t slab_bytes);
// Journal space for a member's part of the commit record. A range occupies as many slabs as it
// fills, and is cut into pieces if it is encoded.
uint64_t record_bytes(const ckpt::fb::BeginSnapshotT& message, uint64_t slab_bytes, bool encodes);

}  // namespace ckptd
