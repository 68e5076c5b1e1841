// Private to this folder: what one record changes about a run as a whole.
#pragma once

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/space_ledger.h"

namespace ckptd {

// Puts what changes with a run's history, as `change.run` has it.
void put_run_state(Change& change);

// The run goes, with everything it has: all its keys but the two that say that it was there, and
// those of space that is not given back yet. `change.run` is the run as it was.
void remove_run(const Catalog::Impl& catalog, const ckpt::fb::RunRemovedT& removed, Change& change,
                SpaceLedger& space);

// `record` is a Granted of `change.run`. kCorrupt: to nobody.
Status set_grant(const ckpt::fb::RecordT& record, Change& change);

}  // namespace ckptd
