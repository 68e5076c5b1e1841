// Invariants of history, broken once. See docs/internals/invariants.md.
#include <gtest/gtest.h>

#include "ckptd/catalog/kv_store.h"
#include "ckptd/history/history.h"
#include "ckptd/io/memory_disk.h"

namespace ckptd {
namespace {

TEST(HistoryInvariants, ARecordAppliedOutOfOrderAborts) {
  MemoryDisk disk({.seed = 1});
  const auto executor = make_inline_executor();
  const Turn turn([] { return uint64_t{1}; });
  History history({.disk = disk,
                   .executor = *executor,
                   .turn = turn,
                   .open_catalog = {},
                   .apply_turn = std::chrono::milliseconds(1),
                   .on_record = [](const ckpt::fb::RecordT&) {}});
  RecoveredStore store;
  store.end.next_sequence = 8;
  history.use(store);
  EXPECT_DEATH(history.apply(9, {}), "record 9 is applied after record 7");
  EXPECT_DEATH(history.apply(7, {}), "record 7 is applied after record 7");
}

}  // namespace
}  // namespace ckptd
