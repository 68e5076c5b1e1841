// JournalSalvage: startup with a damaged journal whose lost records the catalog knows.
//
// Either more of the journal follows the damage, or the catalog, which is written only after the
// journal is durable, is ahead of the journal. In both cases durable bytes of the journal were
// lost, and must not be skipped. A new journal is written beside the damaged one. It has the
// records before the damage, and then all others from the catalog; commits only as far as their
// extents' headers, a second copy of the same facts, confirm them. Then it replaces the damaged
// one, which is kept. A crash or an error at any step leaves work that finish() of the next startup
// completes (new_journal.h).
//
// Blocking; loop thread; before any session exists.
#pragma once

#include "ckptd/catalog/salvage.h"
#include "ckptd/history/history.h"
#include "ckptd/loop/turn.h"
#include "ckptd/recovery/commit_checker.h"

namespace ckptd {

class JournalSalvage {
 public:
  JournalSalvage(Disk& disk, History& history, const Turn& turn, CommitChecker& checker,
                 uint64_t random_seed)
      : disk_(disk), history_(history), turn_(turn), checker_(checker), random_seed_(random_seed) {}

  // Finishes a salvage that an earlier startup began, before the store is read. False: none was.
  Result<bool> finish();
  // Call this once the catalog is open. True: `store` is read again, its journal is new, and the
  // catalog has to be filled from it. After an error nothing was changed, or the next startup
  // finishes the salvage.
  Result<bool> salvage(RecoveredStore& store);

 private:
  Status catch_up_behind(RecoveredStore& store);
  Status write_new_journal(const RecoveredStore& damaged, const Salvage& salvage);

  Disk& disk_;
  History& history_;
  const Turn& turn_;
  CommitChecker& checker_;
  const uint64_t random_seed_;
};

}  // namespace ckptd
