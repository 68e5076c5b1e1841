// Codecs: how the bytes of a fragment lie on disk.
//
// An encoded fragment is one zstd frame of all its bytes, or of their byte planes: the first bytes
// of all elements, then the second bytes, and so on; what is left after the last whole element
// follows as it is. It has few enough bytes to be decoded in one piece; the writer cuts larger
// ones.
#pragma once

#include <cstdint>
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
};
inline constexpr uint32_t kCodecCount = 5;

// Of an encoded fragment, decoded: who reads it has as much memory for it, whatever it claims.
inline constexpr uint64_t kEncodedFragmentBytesMax = 1ull << 20;

// Bytes of an element whose planes lie apart; 1: they do not.
uint32_t plane_count(Codec codec);
// The one for elements of so many bytes: 1, 2, 4 or 8.
Codec zstd_codec(uint64_t element_bytes);

// Can a fragment be like this? `encoded_bytes` and `encoded_crc32c` are those of what is on disk,
// and zero where it lies there as it is. kVersionMismatch: no such codec, so far.
Status check_encoding(uint32_t codec, uint64_t length, uint64_t encoded_bytes,
                      uint32_t encoded_crc32c);

// Goes along the fragments of a commit, and says of each what its record has in `encoded`.
class EncodedFragments {
 public:
  explicit EncodedFragments(const std::vector<fb::Encoded>& list) : list_(list) {}
  // Of the next fragment; zeros: the record names none.
  fb::Encoded next() {
    const uint32_t fragment = next_fragment_++;
    const bool named = at_ < list_.size() && list_[at_].fragment() == fragment;
    return named ? list_[at_++] : fb::Encoded();
  }
  // Did every entry belong to a fragment?
  bool all_taken() const { return at_ == list_.size(); }

 private:
  const std::vector<fb::Encoded>& list_;
  uint32_t next_fragment_ = 0;
  size_t at_ = 0;
};

}  // namespace ckpt
