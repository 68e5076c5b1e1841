// The catalog in memory that replaces one on a full disk: a catalog on disk that should have been
// emptied is never used with its old contents.
#include "ckptd/catalog/stand_in_store.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

class StandInStoreTest : public ::testing::Test {
 protected:
  StandInStoreTest() {
    opened_ = StandInStore::open([image = image_]() -> ckpt::Result<OpenedKvStore> {
      CKPT_TRY(image->open());
      return OpenedKvStore{.store = make_memory_store(image), .broken = {}};
    });
    EXPECT_TRUE(put("old").ok());
  }
  StandInStore& store() { return *opened_->store; }
  ckpt::Status put(const std::string& key) {
    return store().write({{Family::kRuns, key, "value"}});
  }
  bool has(const std::string& key) { return store().get(Family::kRuns, key).value().has_value(); }

  std::shared_ptr<MemoryKvImage> image_ = std::make_shared<MemoryKvImage>();
  ckpt::Result<StandInStore::Opened> opened_ = StandInStore::Opened();
};

// Regression: clear() reported success, and the old contents returned.
TEST_F(StandInStoreTest, ClearFailedByFullDiskIsRetriedLater) {
  image_->set_full(true);
  ASSERT_TRUE(store().clear().ok());
  EXPECT_TRUE(store().in_memory());
  EXPECT_FALSE(store().try_disk().ok());
  EXPECT_TRUE(store().in_memory()) << "still";
  image_->set_full(false);
  ASSERT_TRUE(store().try_disk().ok());
  EXPECT_FALSE(has("old"));
}

TEST_F(StandInStoreTest, TrialOfDiskKeepsMemoryContents) {
  store().switch_to_memory();
  ASSERT_TRUE(put("new").ok());
  ASSERT_TRUE(store().try_disk().ok());
  EXPECT_TRUE(has("old") && !has("new"));
  store().stay_in_memory();
  EXPECT_TRUE(has("new") && !has("old"));
  ASSERT_TRUE(store().try_disk().ok());
  store().stay_on_disk();
  EXPECT_TRUE(has("old"));
  EXPECT_FALSE(store().in_memory());
}

TEST_F(StandInStoreTest, FailedClearDuringTrialKeepsMemoryContents) {
  store().switch_to_memory();
  ASSERT_TRUE(put("new").ok());
  ASSERT_TRUE(store().try_disk().ok());
  image_->set_full(true);
  EXPECT_FALSE(store().clear().ok());
  store().stay_in_memory();
  EXPECT_TRUE(has("new"));
}

}  // namespace
}  // namespace ckptd
