// Private to this folder: the effect of a record that moves bytes of a commit.
#pragma once

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/space_ledger.h"

namespace ckptd {

// Gives the versions their new places, and marks the old ones as dead. kCorrupt: the commit does
// not exist, the extents are not its own, another commit references them, or the new places do not
// cover exactly the data in the old ones.
Status move_bytes(const Catalog::Impl& catalog, uint64_t sequence, const ckpt::fb::MovedT& moved,
                  Change& change, SpaceLedger& space);

}  // namespace ckptd
