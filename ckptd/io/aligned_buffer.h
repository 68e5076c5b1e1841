// AlignedBuffer: daemon-private, zeroed memory that starts at a block boundary, as O_DIRECT needs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "formats/base/assert.h"
#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckptd {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `bytes` is rounded up to whole blocks.
  explicit AlignedBuffer(size_t bytes)
      : bytes_(ckpt::base::align_up(bytes, ckpt::kBlockBytes)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(ckpt::kBlockBytes, bytes_))) {
    CKPT_ASSERT_MSG(memory_ != nullptr || bytes_ == 0, "out of memory");
    if (bytes_ > 0) std::memset(memory_.get(), 0, bytes_);
  }

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
