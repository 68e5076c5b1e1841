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

// Page tables are asked for what is not there (PAGEMAP_SCAN, Linux 6.7), or for each of their
// entries, which takes fourteen times as long: 485 us for 64 MiB, and 33.
enum class PageTableWay : uint8_t { kScan, kEntries };

// Can page tables be looked at here (no /proc in some sandboxes)? Without it buffers must not be
// registered.
bool page_guard_available();
bool page_guard_available(PageTableWay way);

// How many pages of the range have no entry in this process's page table. `memory` is page-aligned.
// Swapped and migrating pages count as present: nobody exchanged them. Without a way: by the
// quickest that there is. Thread-safe.
ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory);
ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory, PageTableWay way);

// Faults the range in, keeping its bytes (a write fault without a write). Thread-safe.
ckpt::Status populate(ckpt::MutableByteView memory);

}  // namespace ckptd
