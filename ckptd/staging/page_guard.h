// page_guard: were pages exchanged under a mapping of ours?
//
// A hole punched into a memfd (by anyone who has it) frees its pages. Every mapping is emptied
// there, and the next touch brings a fresh page; but pages pinned by io_uring stay the old ones, so
// the ring writes bytes that no mapping shows any more. No seal forbids punching. What gives it
// away is the page table: the entries of the emptied mapping are gone until somebody touches them
// through it, and /proc/self/pagemap tells. Therefore each arena has one mapping (the guard) that
// is faulted in once and never touched again; all reading goes through a second one.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace ckptd {

// Can page tables be looked at here (no /proc in some sandboxes)? Without it buffers must not be
// registered.
bool page_guard_available();

// How many pages of the range have no entry in this process's page table. `memory` is page-aligned.
// Swapped and migrating pages count as present: nobody exchanged them. Thread-safe.
ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory);

// Faults the range in, keeping its bytes (a write fault without a write). Thread-safe.
ckpt::Status populate(ckpt::MutableByteView memory);

}  // namespace ckptd
