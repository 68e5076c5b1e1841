// Codecs: how the bytes of a fragment lie on disk.
//
// An encoded fragment is one zstd frame of all its bytes, or of their byte planes: the first bytes
// of all elements, then the second bytes, and so on; what is left after the last whole element
// follows as it is. It has few enough bytes to be decoded in one piece; the writer cuts larger
// ones.
//
// A delta is the same of the XOR of its bytes with those of its base: the same range of the unit,
// as an earlier commit wrote it. A base is never a delta.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/base/result.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

// The numbers are on disk: never renumber.
enum class Codec : uint32_t {
  kNone = 0,  // as it is
  kZstd = 1,
  kZstdPlanes2 = 2,
  kZstdPlanes4 = 3,
  kZstdPlanes8 = 4,
  kDeltaZstd = 5,  // as kZstd, of the XOR with the base; likewise those that follow
  kDeltaZstdPlanes2 = 6,
  kDeltaZstdPlanes4 = 7,
  kDeltaZstdPlanes8 = 8,
};
inline constexpr uint32_t kCodecCount = 9;

// Of an encoded fragment, decoded: who reads it has as much memory for it, whatever it claims.
inline constexpr uint64_t kEncodedFragmentBytesMax = 1ull << 20;

// Refusal of the codec `auto`, which older daemons and libraries accepted.
inline constexpr std::string_view kAutoCodecRemoved =
    "codec auto was removed: use none, or zstd where the disk is slower than about 1 GB/s";

// Bytes of an element whose planes lie apart; 1: they do not.
uint32_t plane_count(Codec codec);
// The one for elements of so many bytes: 1, 2, 4 or 8.
Codec zstd_codec(uint64_t element_bytes);

// Has a fragment with this codec a base?
bool is_delta(uint32_t codec);
// The one of a delta whose XOR is encoded with `codec`, one of zstd's.
Codec delta_codec(Codec codec);

// Can a fragment be like this? `encoded_bytes` and `encoded_crc32c` are those of what is on disk,
// and zero where it lies there as it is. kVersionMismatch: no such codec, so far.
Status check_encoding(uint32_t codec, uint64_t length, uint64_t encoded_bytes,
                      uint32_t encoded_crc32c);

// Goes along the fragments of a commit, and says of each what its record has of it in a list that
// names fragments: `encoded`, or `bases`.
template <typename Entry>
class OfFragments {
 public:
  explicit OfFragments(const std::vector<Entry>& list) : list_(list) {}
  // Of the next fragment, if the list names it.
  std::optional<Entry> next() {
    const uint32_t fragment = next_fragment_++;
    const bool named = at_ < list_.size() && list_[at_].fragment() == fragment;
    return named ? std::optional(list_[at_++]) : std::nullopt;
  }
  // Did every entry belong to a fragment?
  bool all_taken() const { return at_ == list_.size(); }

 private:
  const std::vector<Entry>& list_;
  uint32_t next_fragment_ = 0;
  size_t at_ = 0;
};
using EncodedFragments = OfFragments<fb::Encoded>;
using BasesOfFragments = OfFragments<fb::Base>;

}  // namespace ckpt
