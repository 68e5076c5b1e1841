#include <algorithm>
#include <utility>

#include "ckptd/staging/arena_state.h"
#include "ckptd/staging/page_guard.h"
#include "ckptd/staging/staging.h"
#include "ckptd/staging/staging_impl.h"
#include "formats/base/crc32c.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

StagedSlab::StagedSlab(StagedSlab&& other) noexcept
    : staging_(std::exchange(other.staging_, nullptr)),
      arena_(other.arena_),
      slab_(other.slab_),
      payload_(std::exchange(other.payload_, {})),
      guard_(std::exchange(other.guard_, {})),
      view_(std::exchange(other.view_, {})),
      trust_(std::move(other.trust_)),
      payload_bytes_(std::exchange(other.payload_bytes_, 0)),
      buffer_(std::exchange(other.buffer_, std::nullopt)),
      fragments_(std::move(other.fragments_)) {}

StagedSlab& StagedSlab::operator=(StagedSlab&& other) noexcept {
  StagedSlab taken(std::move(other));
  std::swap(staging_, taken.staging_);
  std::swap(arena_, taken.arena_);
  std::swap(slab_, taken.slab_);
  std::swap(payload_, taken.payload_);
  std::swap(guard_, taken.guard_);
  std::swap(view_, taken.view_);
  std::swap(trust_, taken.trust_);
  std::swap(payload_bytes_, taken.payload_bytes_);
  std::swap(buffer_, taken.buffer_);
  std::swap(fragments_, taken.fragments_);
  return *this;  // `taken` frees the previous slab of this object
}

StagedSlab::~StagedSlab() {
  if (staging_ != nullptr) staging_->impl_->release(arena_, slab_);
}

void StagedSlab::mark_writing() {
  CKPT_ASSERT(staging_ != nullptr);
  staging_->impl_->change(arena_, slab_, SlabState::kSealed, SlabState::kWriting);
}

void StagedSlab::mark_durable(const ckpt::SnapshotKey& snapshot) {
  CKPT_ASSERT(staging_ != nullptr);
  Staging* staging = std::exchange(staging_, nullptr);
  staging->impl_->to_cache(arena_, slab_, snapshot, std::move(fragments_));
  *this = StagedSlab();
}

void StagedSlab::mark_held(std::vector<StagedSlab> slabs, const ckpt::SnapshotKey& snapshot) {
  if (slabs.empty()) return;
  Staging* const staging = slabs.front().staging_;
  CKPT_ASSERT(staging != nullptr);
  staging->hold(snapshot, std::move(slabs));
}

namespace {

// Small enough to be in the L2 cache when the observer reads it again.
constexpr uint64_t kObservedBytes = 64 << 10;

uint32_t observed_crc32c(const ckpt::ExtentFragment& fragment, ByteView bytes,
                         const PayloadObserver& observer) {
  if (!observer) return ckpt::base::crc32c(bytes);
  uint32_t crc = 0;
  for (uint64_t from = 0; from < bytes.size();) {
    const uint64_t to = std::min<uint64_t>(from + kObservedBytes, bytes.size());
    crc = ckpt::base::crc32c(bytes.subspan(from, to - from), crc);
    observer(fragment, bytes, from, to);
    from = to;
  }
  return crc;
}

}  // namespace

Status check_payload(const StagedSlab& slab, const PayloadObserver& observer) {
  CKPT_ASSERT(slab.staging_ != nullptr);
  // Page tables first. Reading through `view_` below hides nothing, because the guard is a separate
  // mapping. See page_guard.h.
  if (page_guard_available()) {
    CKPT_ASSIGN(const uint64_t absent, absent_pages(slab.guard_));
    if (absent > 0) {
      slab.trust_->tampered = true;
      return make_error(ErrorCode::kCorrupt,
                        "slab {}: {} pages were exchanged after it was handed over (a hole was "
                        "punched into the arena)",
                        slab.slab_, absent);
    }
  }
  uint64_t at = 0;
  for (const ckpt::ExtentFragment& fragment : slab.fragments_) {
    if (!ckpt::base::all_zero(slab.view_.subspan(at, fragment.payload_offset - at))) {
      return make_error(ErrorCode::kCorrupt,
                        "slab {}: bytes before the fragment of unit {} at "
                        "payload offset {} are not zero",
                        slab.slab_, fragment.unit, fragment.payload_offset);
    }
    const uint32_t crc = observed_crc32c(
        fragment, slab.view_.subspan(fragment.payload_offset, fragment.length), observer);
    if (crc != fragment.crc32c) {
      return make_error(ErrorCode::kCorrupt,
                        "slab {}: unit {} bytes [{}, {}) have CRC32C {:08x}, sealed as {:08x} "
                        "(written to after it was handed over, or never completely copied)",
                        slab.slab_, fragment.unit, fragment.offset,
                        fragment.offset + fragment.length, crc, fragment.crc32c);
    }
    at = fragment.payload_offset + fragment.length;
  }
  if (!ckpt::base::all_zero(slab.view_.subspan(at))) {
    return make_error(ErrorCode::kCorrupt, "slab {}: bytes after the last fragment are not zero",
                      slab.slab_);
  }
  return {};
}

}  // namespace ckptd
