// Private to this folder: effects of single records on a whole run.
#pragma once

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/space_ledger.h"

namespace ckptd {

// Puts the counters that change with a run's history, as `change.run` has them.
void put_run_state(Change& change);

// Removes the run and all of its keys, except the two that record its existence and those of space
// that is not reclaimed yet. `change.run` is the run before its removal.
void remove_run(const Catalog::Impl& catalog, const ckpt::fb::RunRemovedT& removed, Change& change,
                SpaceLedger& space);

// `record` is a Granted of `change.run`. kCorrupt: the record names no user.
Status set_grant(const ckpt::fb::RecordT& record, Change& change);

}  // namespace ckptd
