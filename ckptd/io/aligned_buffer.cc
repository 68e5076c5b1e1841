#include "ckptd/io/aligned_buffer.h"

#include <cstring>

#include "formats/base/assert.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckptd {

AlignedBuffer::AlignedBuffer(size_t bytes)
    : bytes_(ckpt::base::align_up(bytes, ckpt::kBlockBytes)) {
  if (bytes_ == 0) return;
  void* memory = nullptr;
  CKPT_ASSERT_MSG(::posix_memalign(&memory, ckpt::kBlockBytes, bytes_) == 0, "out of memory");
  memory_.reset(static_cast<std::byte*>(memory));
  std::memset(memory, 0, bytes_);
}

}  // namespace ckptd
