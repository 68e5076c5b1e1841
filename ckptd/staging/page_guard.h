// page_guard: detects pages that were exchanged under a mapping of the daemon.
//
// A hole punched into a memfd (by anyone who has it) frees its pages. Every mapping loses them, and
// the next touch brings a fresh page. But io_uring's pinned pages stay the old ones, so the ring
// writes bytes that no mapping shows. No seal forbids punching. The page table reveals it:
// the entries of an emptied mapping are missing until a touch through it, and /proc/self/pagemap
// shows that. So each arena has one mapping (the guard) that is faulted in once. A slab is not
// touched through it from its seal until its check; reads go through a second mapping.
//
// This finds holes made by mistake. A hostile client can hide one: a touch of another slab maps all
// pages of a huge page. It gains nothing, since it may as well change bytes in place during the
// write. Only its own run has these.
#pragma once

#include <cstdint>

#include "formats/base/bytes.h"
#include "formats/base/result.h"

namespace ckptd {

// Page tables are searched for missing pages (PAGEMAP_SCAN, Linux 6.7), or read entry by entry,
// which takes fourteen times as long: 485 us for 64 MiB instead of 33 us.
enum class PageTableWay : uint8_t { kScan, kEntries };

// True if page tables are readable (some sandboxes lack /proc). Otherwise buffers must not be
// registered.
bool page_guard_available();
bool page_guard_available(PageTableWay way);

// Number of pages in the range without an entry in this process's page table. `memory` is
// page-aligned. Migrating pages count as present: they were not exchanged. Pages that the kernel
// swaps out count as absent in shared memory. Default: the fastest available method. Thread-safe.
ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory);
ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory, PageTableWay way);

// Bytes of the range that huge pages map in this process; 0 before Linux 6.7. Thread-safe.
uint64_t huge_bytes(ckpt::ByteView memory);

// Faults the range in, keeping its bytes (a write fault without a write). Thread-safe.
ckpt::Status populate(ckpt::MutableByteView memory);
// The same for a range of an arena through both of its mappings, in huge pages where it has no
// pages yet. The second mapping takes little time, since the pages exist by then.
ckpt::Status populate(ckpt::MutableByteView guard, ckpt::MutableByteView view);

}  // namespace ckptd
