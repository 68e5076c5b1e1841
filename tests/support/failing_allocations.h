// Allocations that fail when a test asks for it. A program that has failing_allocations.cc among
// its sources gets all of its memory there, that of the libraries it is linked with, too.
#pragma once

#include <cstdint>

namespace ckpt::test {

// Allocations of the calling thread are counted from here on: number `number` (the next one is 0)
// throws std::bad_alloc, no other.
void fail_allocation(uint64_t number);
// Ends the count: no allocation fails from now on. True if one has failed.
bool fail_no_allocation();

}  // namespace ckpt::test
