#include "tests/support/failing_allocations.h"

#include <cstdlib>
#include <new>

namespace {

constexpr uint64_t kNever = UINT64_MAX;
thread_local uint64_t left = kNever;  // until the one that fails
thread_local bool has_failed = false;

void* allocate(size_t bytes) {
  if (left == 0) {
    left = kNever;
    has_failed = true;
    throw std::bad_alloc();
  }
  if (left != kNever) --left;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace ckpt::test {

void fail_allocation(uint64_t number) {
  left = number;
  has_failed = false;
}

bool fail_no_allocation() {
  left = kNever;
  return has_failed;
}

}  // namespace ckpt::test

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
// std::stable_sort asks this one, and does without a buffer where it fails.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
