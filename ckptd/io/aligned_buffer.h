// AlignedBuffer: daemon-private, zeroed memory that starts at a block boundary, as O_DIRECT needs.
#pragma once

#include <cstdlib>
#include <memory>

#include "formats/base/bytes.h"

namespace ckptd {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `bytes` is rounded up to whole blocks. Asserts that the allocation succeeds.
  explicit AlignedBuffer(size_t bytes);

  ckpt::MutableByteView bytes() { return {memory_.get(), bytes_}; }
  ckpt::ByteView bytes() const { return {memory_.get(), bytes_}; }
  size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace ckptd
