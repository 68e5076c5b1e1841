// Private to this folder: what a record changes that moves bytes of a commit.
#pragma once

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/space_ledger.h"

namespace ckptd {

// The versions have the new places, what they leave is dead. kCorrupt: there is no such commit, the
// extents are not its own, others have bytes in them, or not exactly what lies in them has a new
// place.
Status move_bytes(const Catalog::Impl& catalog, uint64_t sequence, const ckpt::fb::MovedT& moved,
                  Change& change, SpaceLedger& space);

}  // namespace ckptd
