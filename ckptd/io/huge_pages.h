// Huge pages for arenas. A disk reads and writes contiguous memory in fewer and larger pieces, and
// mapping it takes one page table entry for 2 MiB.
//
// Shared memory gets them by MADV_COLLAPSE, which needs neither a setting of the machine nor a
// privilege, unless shmem_enabled is `deny`. Linux before 6.12 gets none: its io_uring registers a
// huge page as 512 small ones, and compares each huge page with all registered ones.
#pragma once

#include "formats/base/bytes.h"

namespace ckptd {

// Gives each aligned 2 MiB of a shared mapping that has no pages yet one huge page of zeros. Leaves
// memory that has pages as it is: collapsing it would copy them. Stops at the first failure, which
// is harmless: populate() makes small pages of the rest. After a lack of memory all calls do
// nothing for 10 s: if it is fragmented, each try takes long. Thread-safe.
void make_huge_pages(ckpt::MutableByteView memory);

}  // namespace ckptd
