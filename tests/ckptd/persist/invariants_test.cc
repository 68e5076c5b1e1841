// Each invariant of persist and of the journal's writer, broken once by its caller. See
// docs/internals/invariants.md.
#include <gtest/gtest.h>

#include "ckptd/io/memory_disk.h"
#include "tests/ckptd/persist/small_store.h"

namespace ckptd {
namespace {

class PersistInvariants : public testing::Test {
 protected:
  MemoryDisk disk_{{.seed = 1}};
  SmallStore store_{disk_};
};

TEST_F(PersistInvariants, CommitBeforeEndOfItsWritesAborts) {
  store_.write(1, 0);
  EXPECT_DEATH(store_.commit(1), "commit before all extents were written");
  store_.run_writes(1);
  store_.persist().abandon(SmallStore::key(1));
}

TEST_F(PersistInvariants, ASecondCommitOfASnapshotAborts) {
  store_.write(1, 0);
  store_.run_writes(1);
  store_.commit(1);
  EXPECT_DEATH(store_.commit(1), "committed twice");
  store_.run();
}

TEST_F(PersistInvariants, ASlabThatIsWrittenTwiceAborts) {
  StagedSlab slab = store_.stage(1, 0);
  slab.mark_writing();
  EXPECT_DEATH(slab.mark_writing(), "record.state == from");
}

TEST_F(PersistInvariants, AnEmptyAppendToTheJournalAborts) {
  const FileId file = disk_.open("other.log", {.create = true}).value();
  JournalWriter journal(disk_, file, {});
  EXPECT_DEATH(journal.append({}, {}), "!records.empty\\(\\)");
  disk_.close(file);
}

}  // namespace
}  // namespace ckptd
