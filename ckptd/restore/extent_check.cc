#include "ckptd/restore/extent_check.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {

ExtentCheck::ExtentCheck(ckpt::ExtentHeader expected, uint32_t header_bytes, uint32_t header_crc32c,
                         ExtentPart part)
    : expected_(std::move(expected)),
      header_bytes_(header_bytes),
      header_crc32c_(header_crc32c),
      part_(part),
      padded_payload_bytes_(ckpt::base::align_up(expected_.payload_bytes, ckpt::kBlockBytes)) {}

uint64_t ExtentCheck::bytes() const { return header_bytes_ + padded_payload_bytes_; }

std::optional<ckpt::UnitId> ExtentCheck::first_unit() const {
  if (expected_.fragments.empty()) return std::nullopt;
  return expected_.fragments.front().unit;
}

std::string ExtentCheck::at(uint64_t offset_in_payload) const {
  return fmt::format("segment {} offset {}", expected_.segment,
                     expected_.offset + header_bytes_ + offset_in_payload);
}

void ExtentCheck::add(Finding finding) {
  const auto known = std::find_if(findings_.begin(), findings_.end(),
                                  [&](const Finding& other) { return other.unit == finding.unit; });
  if (known == findings_.end()) {
    findings_.push_back(std::move(finding));
  } else if (finding.damage && !known->damage) {
    *known = std::move(finding);
  }
}

void ExtentCheck::damaged_outside_fragments(const std::string& what) { add({first_unit(), what}); }

void ExtentCheck::feed(ckpt::ByteView bytes) {
  CKPT_ASSERT(bytes.size() <= this->bytes() - position_);
  if (position_ < header_bytes_) {
    const auto part = bytes.first(std::min<uint64_t>(bytes.size(), header_bytes_ - position_));
    header_.insert(header_.end(), part.begin(), part.end());
    position_ += part.size();
    bytes = bytes.subspan(part.size());
    if (position_ == header_bytes_ && !header_unreadable_) {
      const Status checked = check_extent_header(header_, expected_, header_crc32c_, part_);
      if (!checked.ok()) {
        damaged_outside_fragments(fmt::format("segment {} offset {}: {}", expected_.segment,
                                              expected_.offset, checked.error().message));
      }
      header_ = {};
    }
  }
  if (!bytes.empty()) feed_payload(bytes);
}

// Advances through fragments and gaps as far as the bytes reach.
void ExtentCheck::feed_payload(ckpt::ByteView bytes) {
  while (!bytes.empty()) {
    const uint64_t payload_at = position_ - header_bytes_;
    const bool more = fragment_ < expected_.fragments.size();
    const ckpt::ExtentFragment* fragment = more ? &expected_.fragments[fragment_] : nullptr;
    const bool inside = more && payload_at >= fragment->payload_offset;
    uint64_t stretch = more ? fragment->payload_offset - payload_at : bytes.size();
    if (inside) stretch = fragment->payload_offset + fragment->stored_bytes() - payload_at;
    const auto part = bytes.first(std::min<uint64_t>(stretch, bytes.size()));
    if (inside) {
      crc_ = ckpt::base::crc32c(part, crc_);
    } else if (part_ == ExtentPart::kWhole && !ckpt::base::all_zero(part)) {
      damaged_outside_fragments(
          fmt::format("{}: bytes outside all fragments are not zero", at(payload_at)));
    }
    position_ += part.size();
    bytes = bytes.subspan(part.size());
    if (inside && part.size() == stretch) end_fragment();
  }
}

void ExtentCheck::end_fragment() {
  const ckpt::ExtentFragment& fragment = expected_.fragments[fragment_];
  if (!fragment_unreadable_ && crc_ != fragment.stored_crc32c()) {
    add({fragment.unit, fmt::format("{}: CRC32C mismatch", at(fragment.payload_offset))});
  }
  next_fragment();
}

void ExtentCheck::next_fragment() {
  fragment_ += 1;
  crc_ = 0;
  fragment_unreadable_ = false;
}

void ExtentCheck::skip(uint64_t bytes, const std::string& reason, Missing missing) {
  const bool damage = missing == Missing::kLost;
  CKPT_ASSERT(bytes <= this->bytes() - position_);
  const std::string where = fmt::format("segment {} offset {}: {}", expected_.segment,
                                        expected_.offset + position_, reason);
  if (position_ < header_bytes_) {
    header_unreadable_ = true;
    add({first_unit(), where, damage});
  }
  position_ += bytes;
  if (position_ <= header_bytes_) return;
  const uint64_t payload_at = position_ - header_bytes_;
  bool any = false;
  while (fragment_ < expected_.fragments.size() &&
         expected_.fragments[fragment_].payload_offset < payload_at) {
    const ckpt::ExtentFragment& fragment = expected_.fragments[fragment_];
    add({fragment.unit, where, damage});
    any = true;
    if (fragment.payload_offset + fragment.stored_bytes() > payload_at) {
      fragment_unreadable_ = true;
      return;
    }
    next_fragment();
  }
  if (!any) add({first_unit(), where, damage});
}

std::vector<ExtentCheck::Finding> ExtentCheck::finish() {
  CKPT_ASSERT(position_ == bytes());
  // Without damage so far, the payload's CRC follows from the journal's fragments alone. A mismatch
  // means that the journal contradicts itself.
  if (findings_.empty() && part_ == ExtentPart::kWhole &&
      ckpt::payload_crc32c(expected_.fragments, padded_payload_bytes_) !=
          expected_.payload_crc32c) {
    damaged_outside_fragments(fmt::format("{}: payload CRC32C mismatch", at(0)));
  }
  return std::move(findings_);
}

}  // namespace ckptd
