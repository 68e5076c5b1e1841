// page_guard: detects pages that were exchanged under a mapping of the daemon.
//
// A hole punched into a memfd (by anyone who has it) frees its pages. Every mapping loses them, and
// the next touch brings a fresh page. But io_uring's pinned pages stay the old ones, so the ring
// writes bytes that no mapping shows. No seal forbids punching. The page table reveals it:
// the entries of an emptied mapping are missing until a touch through it, and /proc/self/pagemap
// shows that. So each arena has one mapping (the guard) that is faulted in once. A slab is not
// touched through it from its seal until its check; reads go through a second mapping.
//
// A touch maps all pages around it that belong to one huge page, those of a neighbouring slab too:
// a client could make one of pages that it has exchanged. So slabs end where huge pages do, or each
// has an entry of its own in the kernel's list of mappings (VMA), which no touch exceeds.
#pragma once

#include <cstdint>

#include "formats/arena.h"
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

// Makes the slabs of a guard independent of each other, as above. Call it before the guard is
// faulted in and after its last remap(). kResourceExhausted: the process has no room for so many
// mappings (vm.max_map_count).
ckpt::Status separate_slabs(const ckpt::ArenaMapping& guard);
// True if separate_slabs() makes a mapping for each slab of that layout.
bool needs_separate_slabs(const ckpt::ArenaLayout& layout);

// Faults the range in, keeping its bytes (a write fault without a write). Thread-safe.
ckpt::Status populate(ckpt::MutableByteView memory);
// The same for a range of an arena through both of its mappings, in huge pages where it has no
// pages yet. The second mapping takes little time, since the pages exist by then.
ckpt::Status populate(ckpt::MutableByteView guard, ckpt::MutableByteView view);

}  // namespace ckptd
