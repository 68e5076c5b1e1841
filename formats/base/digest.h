// Digest: hashes a sequence of numbers and texts, so that different sequences differ in bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/base/hash.h"

namespace ckpt::base {

class Digest {
 public:
  void number(uint64_t value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(value));
    store(bytes_.data() + at, value);
  }
  // Its length first: "ab" then "c" is not "a" then "bc".
  void text(std::string_view value) {
    number(value.size());
    const ByteView bytes = as_bytes(value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  Hash128 hash() const { return hash128(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace ckpt::base
