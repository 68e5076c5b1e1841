#include "ckptd/snapshots/begin_space.h"

#include <algorithm>
#include <set>

#include "ckptd/limits.h"
#include "formats/base/checked.h"
#include "formats/commit.h"
#include "formats/segment.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

// Adds up the space of stretches of units, and of the headers of their slabs.
class DiskBound {
 public:
  explicit DiskBound(uint64_t slabs)
      : bytes_(ckpt::base::checked_mul<uint64_t>(slabs, 2 * ckpt::kBlockBytes)) {}

  void add_stretch(uint64_t stretch_bytes) {
    const auto padded = ckpt::base::checked_add<uint64_t>(
        stretch_bytes, ckpt::kBlockBytes + sizeof(ckpt::ExtentFragment));
    bytes_ = bytes_ && padded ? ckpt::base::checked_add(*bytes_, *padded) : std::nullopt;
  }
  // nullopt: exceeds 64 bits. A streaming member does not say how many slabs it uses. The smallest
  // slabs need two blocks per 64 KiB.
  std::optional<uint64_t> bytes(bool streams) const {
    if (!bytes_ || !streams) return bytes_;
    return ckpt::base::checked_add(*bytes_, *bytes_ / 8);
  }

 private:
  std::optional<uint64_t> bytes_;
};

std::set<ckpt::UnitId> units_in_memory(const fb::BeginSnapshotT& message) {
  return {message.memory_units.begin(), message.memory_units.end()};
}

}  // namespace

std::optional<uint64_t> disk_bytes(const fb::BeginSnapshotT& message) {
  const std::set<ckpt::UnitId> in_memory = units_in_memory(message);
  DiskBound bound(uint64_t{message.slabs_wanted} + 1);
  for (const fb::Range& range : message.fragments) {
    if (!in_memory.contains(range.unit())) bound.add_stretch(range.length());
  }
  for (const auto& blob : message.blobs) bound.add_stretch(blob->bytes);
  return bound.bytes(message.streams);
}

uint64_t snapshot_disk_bytes(const fb::BeginSnapshotT& message,
                             const std::vector<ckpt::UnitSpec>& units, uint32_t members,
                             uint64_t slab_bytes) {
  const std::set<ckpt::UnitId> in_memory = units_in_memory(message);
  uint64_t bytes = 0;
  for (const ckpt::UnitId unit : message.units) {
    if (unit >= units.size()) return 0;
    const auto sum = ckpt::base::checked_add(bytes, units[unit].bytes);
    if (!sum) return 0;
    if (!in_memory.contains(unit)) bytes = *sum;
  }
  // Two slabs per member: one with its last bytes, and one spare. With streams, bytes() counts the
  // full ones.
  DiskBound bound(2 * uint64_t{members} + (message.streams ? 0 : bytes / slab_bytes));
  for (const ckpt::UnitId unit : message.units) {
    if (!in_memory.contains(unit)) bound.add_stretch(units[unit].bytes);
  }
  for (const auto& blob : message.blobs) bound.add_stretch(blob->bytes);
  return bound.bytes(message.streams).value_or(0);
}

uint64_t record_bytes(const fb::BeginSnapshotT& message, uint64_t slab_bytes, bool encodes) {
  constexpr uint64_t kPieceBytes = 512u << 10;
  const std::set<ckpt::UnitId> in_memory = units_in_memory(message);
  uint64_t fragments = 0;
  uint64_t slabs = message.slabs_wanted;
  for (const fb::Range& range : message.fragments) {
    if (in_memory.contains(range.unit())) continue;
    fragments += range.length() / slab_bytes + (encodes ? range.length() / kPieceBytes : 0) + 2;
    slabs += range.length() / slab_bytes;
  }
  uint64_t blob_name_bytes = 0;
  for (const auto& blob : message.blobs) {
    fragments += blob->bytes / slab_bytes + (encodes ? blob->bytes / kPieceBytes : 0) + 2;
    slabs += blob->bytes / slab_bytes;
    blob_name_bytes += blob->name.size();
  }
  fragments = std::min<uint64_t>(fragments, limits::kFragmentsPerSnapshotMax);
  return ckpt::encoded_bytes(
      {.fragments = fragments,
       .encoded = encodes ? fragments : 0,
       .own_extents = std::min<uint64_t>(slabs, limits::kFragmentsPerSnapshotMax),
       .tokens = message.expert_tokens.size() + message.expert_lost.size(),
       .blobs = message.blobs.size(),
       .blob_name_bytes = blob_name_bytes});
}

}  // namespace ckptd
