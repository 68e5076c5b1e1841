// Slabs compared with the copies of their fragments on disk.
#include "ckptd/dedup/comparer.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "ckptd/staging/page_guard.h"
#include "tests/ckptd/dedup/saved_slab.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A second slab has the same bytes as the one on the disk.
class ComparerTest : public SavedSlab {
 protected:
  ~ComparerTest() override {
    comparer_.abandon_all();
    store_.run();
  }

  std::vector<DedupCandidate> candidates() const {
    std::vector<DedupCandidate> candidates;
    for (size_t i = 0; i < extent_.fragments.size(); ++i) {
      candidates.push_back({i, {place(extent_.fragments[i])}});
    }
    return candidates;
  }
  void start(const ckpt::SnapshotKey& snapshot, StagedSlab slab) {
    comparer_.compare(snapshot, std::move(slab), candidates(), {dedup_extent()},
                      [this, snapshot](StagedSlab compared, const std::vector<bool>& same) {
                        order_.push_back(snapshot.run);
                        slab_ = std::move(compared);
                        same_ = same;
                      });
  }
  std::vector<bool> compare() {
    start(SmallStore::key(2), store_.stage(1, 0));
    store_.run();
    return same_;
  }

  size_t abandoned_ = 0;
  Comparer comparer_{{disk_, store_.executor(), store_.staging(), segments_, catalog_},
                     {.on_abandoned = [this] { ++abandoned_; }}};
  StagedSlab slab_;
  std::vector<bool> same_;
  std::vector<ckpt::RunId> order_;
};

TEST_F(ComparerTest, FindsEqualFragments) {
  EXPECT_THAT(compare(), ElementsAre(true, true));
  EXPECT_TRUE(check_payload(slab_).ok());
  EXPECT_EQ(comparer_.read_bytes(), extent_.header_bytes + slab_.payload().size());
}

TEST_F(ComparerTest, FindsSingleBitDifference) {
  disk_.flip(path_, payload() + 100, 1);
  EXPECT_THAT(compare(), ElementsAre(false, true));
}

// A restart would find the extent damaged, and with it every commit that names it.
TEST_F(ComparerTest, DamagedHeaderMatchesNoFragment) {
  disk_.flip(path_, extent_.offset + 9, 1);
  EXPECT_THAT(compare(), ElementsAre(false, false));
}

TEST_F(ComparerTest, ExtentOfAnotherSnapshotMatchesNoFragment) {
  DedupExtent other = dedup_extent();
  other.expected.snapshot.attempt = 7;
  comparer_.compare(SmallStore::key(2), store_.stage(1, 0), candidates(), {other},
                    [this](StagedSlab, const std::vector<bool>& same) { same_ = same; });
  store_.run();
  EXPECT_THAT(same_, ElementsAre(false, false));
}

TEST_F(ComparerTest, ReadErrorMatchesNoFragment) {
  disk_.set_faults({.fail_nth_read = 2});  // after the header of the file
  EXPECT_THAT(compare(), ElementsAre(false, false));
}

// Exchanged pages with equal bytes are compared through the view mapping (staging.h). The exchange
// is still detected, and the disk does not get bytes that cannot be read back.
TEST_F(ComparerTest, ExchangedPagesAreStillDetected) {
  if (!page_guard_available()) GTEST_SKIP() << "no page tables to look at here";
  StagedSlab slab = store_.stage(1, 0);
  const MutableByteView bytes = store_.trainer().slab(slab.slab());
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  const auto at = static_cast<off_t>(slab.slab() * kTestSlabBytes + 8192);
  ASSERT_EQ(fallocate(store_.trainer().fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096),
            0);
  std::copy(before.begin(), before.end(), bytes.begin());
  start(SmallStore::key(2), std::move(slab));
  store_.run();
  EXPECT_THAT(same_, ElementsAre(true, true));
  const Status checked = check_payload(slab_);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("pages were exchanged"));
}

// A run with many slabs does not keep others waiting.
TEST_F(ComparerTest, ServesRunsInTurn) {
  for (size_t i = 0; i < limits::kComparedSlabsMax + 3; ++i) {
    start(SmallStore::key(2), store_.stage(1, 0));
  }
  ckpt::SnapshotKey other = SmallStore::key(2);
  other.run = 9;
  start(other, store_.stage(1, 0));
  store_.run();
  ASSERT_EQ(order_.size(), limits::kComparedSlabsMax + 4);
  const auto turn = std::find(order_.begin(), order_.end(), other.run) - order_.begin();
  EXPECT_LE(turn, static_cast<std::ptrdiff_t>(limits::kComparedSlabsMax + 1));
}

TEST_F(ComparerTest, SkipsSlabsThatWaitedTooLong) {
  for (size_t i = 0; i < limits::kComparedSlabsMax; ++i) {
    start(SmallStore::key(2), store_.stage(1, 0));
  }
  ckpt::SnapshotKey last = SmallStore::key(2);
  last.run = 9;
  start(last, store_.stage(1, 0));
  comparer_.tick(limits::kCompareWaitMax);
  store_.run();
  EXPECT_EQ(order_.size(), limits::kComparedSlabsMax + 1);
  const uint64_t one = extent_.header_bytes + slab_.payload().size();
  EXPECT_EQ(comparer_.read_bytes(), limits::kComparedSlabsMax * one);
}

TEST_F(ComparerTest, AbandonedSnapshotGetsNoResults) {
  const uint64_t sealed = store_.slabs(SlabState::kSealed);
  for (size_t i = 0; i < limits::kComparedSlabsMax + 1; ++i) {
    start(SmallStore::key(2), store_.stage(1, 0));
  }
  comparer_.abandon(SmallStore::key(2));
  EXPECT_FALSE(comparer_.idle());
  store_.run();
  EXPECT_TRUE(comparer_.idle());
  EXPECT_TRUE(order_.empty());
  EXPECT_EQ(abandoned_, limits::kComparedSlabsMax);
  EXPECT_EQ(store_.slabs(SlabState::kSealed), sealed);
}

}  // namespace
}  // namespace ckptd
