// Linked into programs that feed hostile bytes to parsers: one allocation far above the size of any
// of their inputs ends the program. It is what believing a length before checking it looks like.
#include <cstdlib>
#include <new>

#include "formats/base/assert.h"

namespace {

constexpr size_t kAllocationBytesMax = 64u << 20;

void* allocate(size_t bytes) {
  CKPT_ASSERT_MSG(bytes <= kAllocationBytesMax, "an allocation by a length that nobody checked");
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  CKPT_ASSERT(memory != nullptr);
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
// std::stable_sort asks this one for its buffer, and frees it as all other memory: it has to be
// ours, too, or the sanitizer sees its own allocator's memory given to std::free.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
