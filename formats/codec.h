// Codecs: how the bytes of a fragment are stored on disk.
//
// An encoded fragment is one zstd frame of all its bytes, or of their byte planes: the first bytes
// of all elements, then the second bytes, and so on; bytes after the last whole element follow
// unchanged. An encoded fragment is small enough to be decoded in one piece; the writer splits
// larger fragments.
//
// A delta encodes the XOR of a fragment with its base: the same range of the unit in an earlier
// commit. A base is never a delta.
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
  kNone = 0,  // stored raw
  kZstd = 1,
  kZstdPlanes2 = 2,
  kZstdPlanes4 = 3,
  kZstdPlanes8 = 4,
  kDeltaZstd = 5,  // as kZstd, of the XOR with the base; likewise the next three
  kDeltaZstdPlanes2 = 6,
  kDeltaZstdPlanes4 = 7,
  kDeltaZstdPlanes8 = 8,
};
inline constexpr uint32_t kCodecCount = 9;

// Decoded size limit. It bounds a reader's memory, whatever the fragment's header claims.
inline constexpr uint64_t kEncodedFragmentBytesMax = 1ull << 20;

// Refusal of the codec `auto`, which older daemons and libraries accepted.
inline constexpr std::string_view kAutoCodecRemoved =
    "codec auto was removed: use none, or zstd where the disk is slower than about 1 GB/s";

// Number of byte planes that the codec separates; 1: none.
uint32_t plane_count(Codec codec);
// The zstd codec for elements of this size: 1, 2, 4 or 8 bytes.
Codec zstd_codec(uint64_t element_bytes);

// True if a fragment with this codec has a base.
bool is_delta(uint32_t codec);
// The delta codec whose XOR is encoded with `codec`, a zstd codec.
Codec delta_codec(Codec codec);

// Checks that a fragment can have this encoding. `encoded_bytes` and `encoded_crc32c` are those of
// the stored bytes, and zero without a codec. kVersionMismatch: this program lacks the codec.
Status check_encoding(uint32_t codec, uint64_t length, uint64_t encoded_bytes,
                      uint32_t encoded_crc32c);

// Walks a commit's fragments and returns the entry of each in one of the record's sparse lists,
// `encoded` or `bases`. Entries name their fragments in ascending order.
template <typename Entry>
class OfFragments {
 public:
  explicit OfFragments(const std::vector<Entry>& list) : list_(list) {}
  // The entry of the next fragment, if the list has one.
  std::optional<Entry> next() {
    const uint32_t fragment = next_fragment_++;
    const bool named = at_ < list_.size() && list_[at_].fragment() == fragment;
    return named ? std::optional(list_[at_++]) : std::nullopt;
  }
  // True if every entry belonged to a fragment.
  bool all_taken() const { return at_ == list_.size(); }

 private:
  const std::vector<Entry>& list_;
  uint32_t next_fragment_ = 0;
  size_t at_ = 0;
};
using EncodedFragments = OfFragments<fb::Encoded>;
using BasesOfFragments = OfFragments<fb::Base>;

}  // namespace ckpt
