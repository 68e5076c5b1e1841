#include "ckptd/sources/memory/memory_source.h"

#include <utility>

namespace ckptd {

MemorySource::MemorySource(Staging& staging)
    : Source({.id = SourceId::kMemory, .name = "memory", .staged = true}), staging_(staging) {}

std::optional<MemoryLease> MemorySource::find(const FragmentName& fragment) const {
  return staging_.find_cached(fragment.uid, fragment.snapshot, fragment.unit,
                              fragment.stored.offset, fragment.stored.length);
}

std::optional<Address> MemorySource::can_serve(const FragmentName& fragment) const {
  const FragmentPlace& stored = fragment.stored;
  // A fragment on no disk can only be here: if it was evicted, lease() fails.
  if (!find(fragment) && stored.segment != kNoSegment) return std::nullopt;
  return Address{stored.segment, stored.payload_offset};
}

std::string MemorySource::describe(const Address&) const { return "memory"; }

std::shared_ptr<void> MemorySource::hold(const FragmentName& fragment) {
  if (fragment.stored.segment != kNoSegment) return nullptr;
  auto found = find(fragment);
  return found ? std::move(found->hold) : nullptr;
}

Result<StagedBytes> MemorySource::lease(const FragmentName& fragment) {
  auto found = find(fragment);
  if (!found) {
    return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "its slab cannot be trusted any more");
  }
  return StagedBytes{found->bytes, std::move(found->hold)};
}

}  // namespace ckptd
