// Huge pages for arenas. A disk reads and writes contiguous memory in fewer and larger pieces, and
// mapping it takes one page table entry for 2 MiB.
//
// Shared memory gets them by MADV_COLLAPSE (Linux 6.1), which needs neither a setting of the
// machine nor a privilege. Elsewhere, and in fragmented memory, arenas have pages of 4 KiB.
#pragma once

#include "formats/base/bytes.h"

namespace ckptd {

// Gives each aligned 2 MiB of a shared mapping that has no pages yet one huge page of zeros. Leaves
// memory that has pages as it is: collapsing it would copy them. Stops at the first failure, which
// is harmless: populate() makes small pages of the rest. Thread-safe.
void make_huge_pages(ckpt::MutableByteView memory);

}  // namespace ckptd
